"""The csv of labels: assignments.csv in a run's folder, and what predict writes. A row for each image."""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from concurl.aside import write_whole, written_aside
from concurl.clustering.assign import UNSURE, Assignment, assign_embeddings, embeddings
from concurl.csvlines import csv_lines
from concurl.data.imageset import ImageSet
from concurl.errors import UserError
from concurl.network.trained import TrainedModel
from concurl.progress import Progress
from concurl.runs.clusternames import names_of

log = logging.getLogger("concurl")

FILE = "assignments.csv"
COLUMNS = ("path", "cluster", "name", "confidence", "margin", "agreement", "outlier", "status")

# Images are embedded in these blocks, however they are shared out: an image's last digits may depend on its place in the
# matrices, and so its place is always the same. Whole chunks of the network's (see embed.py): a part of one costs as much.
BLOCK = 1024
SPAN = 32 * BLOCK  # images embedded in one go: the next are read while these are computed


def write_assignments(folder: Path, names: Sequence[str], found: Assignment) -> None:
    """The run's own table, with the names of its names.json."""
    with written_aside(folder / FILE) as file:  # line by line: as one text it would take more memory than the arrays
        file.writelines(csv_lines([COLUMNS]))
        file.writelines(csv_lines(assignment_rows(names, found, names_of(folder))))


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
    """Bring the column `name` up to date with names.json (none: no names); all else stays as it is."""
    path, given = folder / FILE, folder / "names.json"
    if not path.exists():
        return
    names = names_of(folder)
    if strangers := sorted(set(names) - set(range(n_clusters))):
        unknown = ", ".join(map(str, strangers))
        log.warning("%s: the run has the clusters 0 to %d, and no %s", given, n_clusters - 1, unknown)
    try:
        with open(path, newline="", encoding="utf-8", errors="surrogateescape") as file:
            columns, *rows = csv.reader(file)
        cluster, name = columns.index("cluster"), columns.index("name")
        named = [[*row[:name], names.get(int(row[cluster]), ""), *row[name + 1 :]] for row in rows]
    except (csv.Error, ValueError, IndexError) as error:
        raise UserError(f"{path}: no valid assignments ({error}); make them anew with concurl fit --resume") from None
    if named != rows:
        write_whole(path, b"".join(csv_lines([columns, *named])))
