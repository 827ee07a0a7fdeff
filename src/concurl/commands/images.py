"""A run's images, wherever they are now: opened again, and compared with those it has labelled."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from concurl.data.files.lists import LIST_SUFFIXES
from concurl.errors import UserError
from concurl.progress import stages
from concurl.runs.provenance import Provenance

if TYPE_CHECKING:
    from concurl.config import Config
    from concurl.data.imageset import ImageSet, Opened

log = logging.getLogger("concurl")

REORDERED, REPLACED = "another order", "other content under the same names"


def run_of(folder: Path, moved: str | None) -> tuple[Config, Provenance]:
    """Its config.json and run.json, with another place for the images if one was given; the files stay as they are."""
    from concurl.runs.runfolder import config_of

    config, provenance = config_of(folder), Provenance.read(folder)
    if provenance.data_dir is not None and not os.path.isdir(provenance.data_dir):
        provenance = replace(provenance, data_dir=None)  # then the usual places are looked through
    if moved is not None:
        return config, replace(provenance, source=absolute(moved), called_in=os.getcwd())
    if os.path.isabs(provenance.source) and not _there(provenance.source):
        raise UserError(f"{provenance.source}: the run's images are not there any more; give their place with --source")
    return config, provenance


def _there(source: str) -> bool:
    """Is it still on the disk? Of a pattern, the folder before its first *, ? or [."""
    from concurl.data.files.pattern import fixed_folder, is_pattern

    return os.path.lexists(source) or (is_pattern(source) and os.path.isdir(fixed_folder(source)))


def absolute(source: str) -> str:
    """The source as it can be found from any folder, as a run may be resumed from elsewhere. A benchmark keeps its name."""
    from concurl.data.benchmarks import BENCHMARKS
    from concurl.data.files.pattern import is_pattern

    if source in BENCHMARKS:
        return source
    path = os.path.expanduser(source)
    return os.path.abspath(path) if os.path.lexists(path) or is_pattern(path) else source


def open_again(
    provenance: Provenance, config: Config, workers: int | None = None, largest: int | None = None
) -> Opened:
    """The images that run.json names."""
    from concurl.data.pictures.reading import Reading
    from concurl.data.sources import open_source

    with chdir(_paths_start(provenance)):
        return open_source(
            provenance.source,
            data_dir=None if provenance.data_dir is None else Path(provenance.data_dir),
            image_size=config.image_size,
            reading=Reading.of(config),
            limit=provenance.limit,
            workers=workers,
            largest=largest,
            progress=stages(),
        )


def _paths_start(provenance: Provenance) -> str:
    """The folder to read the images from. A list's paths may start from where fit was called, so that is its folder."""
    folder = provenance.called_in if provenance.source.lower().endswith(LIST_SUFFIXES) else None
    return folder if folder and os.path.isdir(folder) else os.curdir


def trained_hash(images: ImageSet, config: Config, provenance: Provenance) -> str:
    """Of those that are trained on: run.json has it under "images"."""
    from concurl.data.storage.fingerprint import fingerprint
    from concurl.runs.run import training_part

    seen, _ = training_part(images, config, provenance.train_images)
    return fingerprint(seen)


def same_images(images: ImageSet, config: Config, provenance: Provenance) -> bool:
    """Are they those that the run is trained on? Where that is not known, they are taken to be."""
    return provenance.images in (None, trained_hash(images, config, provenance))


def change_of_images(labelled: Sequence[str], images: ImageSet, config: Config, provenance: Provenance) -> str:
    """How these images differ from those that the run has trained on and labelled; empty if they do not."""
    from concurl.report.facts import shown

    rows = _rows_of(labelled, images)
    known = set(rows)
    gone = [path for path, row in zip(labelled, rows, strict=True) if row < 0]
    new = [name for row, name in enumerate(images.names) if row not in known]
    changes = {"gone": gone, "new": new}
    if told := [f"{len(paths):,} {what}, such as {shown(min(paths))}" for what, paths in changes.items() if paths]:
        return " and ".join(told)
    if rows != list(range(len(images))):
        return REORDERED
    return "" if same_images(images, config, provenance) else REPLACED


def _rows_of(paths: Sequence[str], images: ImageSet) -> list[int]:
    """The row of each path's image, or -1. A copy whose name comes earlier may stand for the file that the run had."""
    given = images.given
    names, rows = (images.names, range(len(images))) if given is None else (given.names, given.index.tolist())
    place = dict(zip(names, rows, strict=True))
    return [place.get(path, -1) for path in paths]


def in_order_of(folder: Path, config: Config, provenance: Provenance, opened: Opened) -> Opened:
    """The images that the run has labelled, in its order, so that none is shown under another's label.

    Folders live on: a picture that is gone is grey on the page, one that is new is not on it, and both are told.
    """
    import numpy as np

    from concurl.data.storage.subset import pick_known
    from concurl.runs.spreadsheet import labelled_paths

    labelled = labelled_paths(folder)
    change = change_of_images(labelled, opened.images, config, provenance)
    if provenance.limit is not None and change not in ("", REPLACED):
        raise UserError(
            f"{folder} is of a sample (--limit {provenance.limit}) of {provenance.source}: files came or went there since, so "
            "that the same sample cannot be drawn; bring those back, or give their place with --source"
        )
    rows = np.array(_rows_of(labelled, opened.images))
    if 2 * int((rows < 0).sum()) > len(rows):
        raise UserError(f"not the images of {folder}: {change}; bring those back, or give their place with --source")
    if change not in ("", REORDERED):
        log.warning("the images have changed since %s: %s; the page has the run's labels", folder, change)
    labels = None if opened.labels is None else np.where(rows < 0, -1, opened.labels[rows])
    images = replace(opened.images, images=pick_known(opened.images.images, rows), names=labelled)
    return replace(opened, images=images, labels=labels)
