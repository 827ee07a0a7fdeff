"""The one form in which images travel through the package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from concurl.data.checking.audit import Summary
from concurl.data.storage.subset import pick


@dataclass(frozen=True)
class Skipped:
    """A file that was left out, and why."""

    path: str
    status: str
    reason: str


@dataclass(frozen=True)
class Given:
    """The readable files as they were given: copies included, and a list in its own order."""

    names: Sequence[str]
    index: NDArray[np.int64]  # which image each one is


@dataclass(frozen=True)
class ImageSet:
    """N images of one size, in a fixed order that does not depend on the file system's.

    It carries no labels: those go from the reader to `clustering.evaluate` and to the report, past training.
    """

    images: NDArray[np.uint8]  # (N, 3, H, W), RGB; may be a memory map
    names: Sequence[str]  # N paths, or indices as text where there is no path
    skipped: Sequence[Skipped] = ()
    given: Given | None = None  # None: they are just these images, in this order
    summary: Summary = field(default_factory=Summary)  # of the files; empty where there are none
    root: str | None = None  # Path(root) / name is the file
    reused: bool = False  # from the pack of an earlier reading

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.shape[1] != 3 or self.images.dtype != np.uint8:
            raise ValueError(f"images must be uint8 (N, 3, H, W), not {self.images.dtype} {self.images.shape}")
        if len(self.names) != len(self.images):
            raise ValueError(f"{len(self.names)} names for {len(self.images)} images")

    def __len__(self) -> int:
        return len(self.images)

    def each_given(self) -> ImageSet:
        """An image for each file that was given, to be labelled. (Training wants each image once, in a fixed order.)"""
        if self.given is None:
            return self
        images = pick(self.images, self.given.index)
        skipped = [skip for skip in self.skipped if skip.status != "duplicate"]
        return ImageSet(images, self.given.names, skipped, summary=self.summary, root=self.root)


@dataclass(frozen=True)
class Opened:
    """A source's images and, apart from them, what only evaluation and report may use."""

    images: ImageSet
    labels: NDArray[np.int64] | None = None
    classes: Sequence[str] | None = None
