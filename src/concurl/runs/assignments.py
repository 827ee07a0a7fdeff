"""The csv of labels: assignments.csv in a run's folder, and what predict writes. A row for each image."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from concurl.atomic import write_whole, written_aside
from concurl.clustering.assign import UNSURE, Assignment, assign_embeddings, embeddings
from concurl.csvfile import csv_lines
from concurl.data.imageset import ImageSet
from concurl.errors import UserError
from concurl.network.trained import TrainedModel
from concurl.progress import Progress
from concurl.runs.clusternames import as_json, names_of, write_names
from concurl.runs.spreadsheet import Table
from concurl.runs.summary import change_summary, read_summary

log = logging.getLogger("concurl")

FILE = "assignments.csv"
COLUMNS = ("path", "cluster", "name", "confidence", "margin", "agreement", "outlier", "status")

# Images are embedded in these blocks, however they are shared out: an image's last digits may depend on its place in the
# matrices, and so its place is always the same. Whole chunks of the network's (see embed.py): a part of one costs as much.
BLOCK = 1024
SPAN = 32 * BLOCK  # images embedded in one go: the next are read while these are computed


def write_assignments(folder: Path, names: Sequence[str], found: Assignment) -> None:
    """The run's own table, with the names of its names.json. One that somebody has changed is kept as assignments.csv.old."""
    path, old, cluster_names = folder / FILE, folder / f"{FILE}.old", names_of(folder)

    def lines() -> Iterator[bytes]:  # one by one: as one text they would take more memory than the arrays
        return csv_lines(chain([COLUMNS], assignment_rows(names, found, cluster_names)))

    if path.exists() and not _holds(path, lines()):
        old.unlink(missing_ok=True)
        try:
            os.link(path, old)
        except OSError:  # a file system without hard links
            shutil.copyfile(path, old)
        log.warning("%s is not as the run writes it: it is kept as %s", path, old)
    with written_aside(path) as file:
        file.writelines(lines())


def _holds(path: Path, lines: Iterable[bytes]) -> bool:
    """Are these lines all that is in the file?"""
    with open(path, "rb") as file:
        return all(file.read(len(line)) == line for line in lines) and not file.read(1)


def write_predictions(
    path: Path, trained: TrainedModel, images: ImageSet, rows: range, cluster_names: dict[int, str]
) -> int:
    """Label the images `rows` (from a block's start) block by block: memory does not grow with their number.

    After the last image come the files that cannot be read, with their status and no cluster. Returns how many they are.
    """
    skipped = images.skipped if rows.stop == len(images) else []
    progress = Progress("label", len(rows), "images")
    with written_aside(path) as file:
        file.writelines(csv_lines([COLUMNS]))
        for start in range(rows.start, rows.stop, SPAN):
            stop = min(start + SPAN, rows.stop)
            x, _ = embeddings(trained, images.images[start:stop], advance=progress.advance)
            for first, block in zip(range(start, stop, BLOCK), torch.split(x, BLOCK), strict=True):
                names = images.names[first : first + len(block)]
                file.writelines(csv_lines(assignment_rows(names, assign_embeddings(trained, block), cluster_names)))
        blank = [""] * (len(COLUMNS) - 2)
        file.writelines(csv_lines((skip.path, *blank, skip.status) for skip in skipped))
    progress.close()
    return len(skipped)


def assignment_rows(names: Sequence[str], a: Assignment, cluster_names: dict[int, str]) -> Iterator[tuple[Any, ...]]:
    """One row per image; numbers to four places, so that the text is the same wherever the labels are."""
    for name, label, *numbers in zip(names, a.labels, a.confidence, a.margin, a.agreement, a.outlier, strict=True):
        named = cluster_names.get(int(label), "")
        status = "ok" if numbers[2] >= UNSURE else "unsure"
        yield (name, int(label), named, *(f"{x:.4f}" for x in numbers), status)


def take_names(folder: Path, n_clusters: int) -> None:
    """Bring the column `name` up to date with names.json (none: no names), and names.json with names typed into it.

    All else stays as it was written: rows that a spreadsheet has sorted are put back, see spreadsheet.py.
    """
    path, given = folder / FILE, folder / "names.json"
    if not path.exists():
        return
    table, names = Table(path), names_of(folder)
    if typed := {cluster: name for cluster, name in table.typed().items() if names.get(cluster) != name}:
        for cluster, name in typed.items():
            if cluster in names and names[cluster] != table.named_before(cluster):
                raise UserError(
                    f"cluster {cluster} is {names[cluster]!r} in {given} and {name!r} in {path}; give it one name"
                )
        names |= typed
        write_names(given, names)
        told = ", ".join(f"{cluster} {name}" for cluster, name in typed.items())
        log.info("names typed into %s are now in %s: %s", path, given, told)
    if strangers := sorted(set(names) - set(range(n_clusters))):
        unknown = ", ".join(map(str, strangers))
        log.warning("%s: the run has the clusters 0 to %d, and no %s", given, n_clusters - 1, unknown)
    lines = b"".join(csv_lines(table.named(names)))
    if lines != path.read_bytes():
        write_whole(path, lines)
    if table.was_sorted:
        log.warning("%s was sorted: its rows are again in the order of embeddings.npy", path)
    summary = read_summary(folder)
    if summary and summary.get("names") != (kept := as_json(names)):
        change_summary(folder, names=kept)
