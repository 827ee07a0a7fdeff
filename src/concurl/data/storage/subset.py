"""Some of the images, in any order, some of them twice or missing: read where they are looked at, never all copied."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray


def pick(images: NDArray[np.uint8], index: NDArray[np.int64]) -> NDArray[np.uint8]:
    """images[index], for those who look at a few at a time."""
    return cast("NDArray[np.uint8]", Subset(images, index))


def pick_known(images: NDArray[np.uint8], index: NDArray[np.int64]) -> NDArray[np.uint8]:
    """images[index], for those who look at one at a time; where the index is negative, an even grey."""
    return cast("NDArray[np.uint8]", SubsetOrGrey(images, index))


class Subset:
    """Stands for images[index]. A part of it is again a Subset; pixels are read when numpy is asked for an array."""

    def __init__(self, images: NDArray[np.uint8], index: NDArray[np.int64]) -> None:
        self._images, self._index = images, index
        self.dtype, self.ndim = images.dtype, images.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), *self._images.shape[1:])

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape)

    def __len__(self) -> int:
        return len(self._index)

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        return (self._images[i] for i in self._index)

    def __getitem__(self, where: slice | NDArray[np.int64]) -> Subset:
        return Subset(self._images, self._index[where])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self._images[self._index], dtype)


class SubsetOrGrey(Subset):
    """Stands for images[index]; a negative index means that there is no such image."""

    def __getitem__(self, row: Any) -> Any:
        found = self._index[row]
        return self._images[found] if found >= 0 else np.full(self.shape[1:], 128, np.uint8)
