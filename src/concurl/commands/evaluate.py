"""concurl evaluate"""

from __future__ import annotations

import argparse
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from concurl.amounts import counted
from concurl.atomic import write_whole
from concurl.commands.images import change_of_images, open_again, run_of
from concurl.commands.options import Parser
from concurl.commands.refusals import check_file, check_labels, check_run
from concurl.errors import UserError
from concurl.progress import Progress
from concurl.runs.provenance import Provenance

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from concurl.config import Config
    from concurl.data.imageset import Opened

log = logging.getLogger("concurl")


def main(argv: list[str]) -> int:
    """Score a run against labels: the benchmark's own, those of a csv, or the folders that the images lie in."""
    parser = Parser(prog="concurl evaluate", description=main.__doc__, example="runs/photos --labels labels.csv")
    parser.add_shared("run", "--labels")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.json", help="write the scores there, too")
    parser.add_shared("--source")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="where a benchmark's files are, if they moved")
    parser.add_shared("--device")
    given = parser.parse(argv)
    check_run(given.run)
    from concurl.clustering.assign import assign
    from concurl.clustering.evaluate import evaluate as score
    from concurl.clustering.evaluate import over_labelled, partitions, table
    from concurl.clustering.metrics import chance
    from concurl.runs import run

    config, provenance = run_of(given.run, given.moved)
    check_labels(given.labels, provenance.source)
    if given.data_dir is not None:
        provenance = replace(provenance, data_dir=str(given.data_dir))
    if given.output is not None:
        own = given.labels if given.labels is not None and given.labels.is_file() else None
        check_file(given.output, "scores.json", provenance.source, own)
    opened, labels = _open(given, config, provenance)
    trained = run.model_of(given.run, given.device)
    progress = Progress("label", len(opened.images), "images")
    assignment = assign(trained, opened.images.images, branches=run.SCORED, advance=progress.advance)
    progress.close()
    device = trained.model.prototypes.device
    found = partitions(assignment, config, device)
    scores = score(found, labels)
    print(table(scores))
    known = labels >= 0
    over = over_labelled(labels) or f"over all {counted(len(labels), 'image')}"
    by_chance = chance(labels[known], assignment.labels[known])
    print(f"{over}; labels dealt out by chance would reach an ACC of {by_chance:.3f}")
    if given.output is not None:
        write_whole(given.output, (json.dumps(scores, indent=2) + "\n").encode())
    return 0


def _open(given: argparse.Namespace, config: Config, provenance: Provenance) -> tuple[Opened, NDArray[np.int64]]:
    """The run's images and their labels; -1 where there is none."""
    from concurl.clustering.evaluate import FOLDERS, read_labels
    from concurl.runs.spreadsheet import labelled_paths

    opened = open_again(provenance, config)
    labels = opened.labels
    if given.labels is not None:
        labels, _ = read_labels(given.labels, opened.images.names, opened.images.root)
    if labels is None:
        raise UserError(
            f"{provenance.source} has no labels of its own; give them with --labels FILE.csv (columns path and label; some "
            f"of the images are enough), or --labels {FOLDERS}, if there is a folder for each kind"
        )
    if (given.run / "assignments.csv").exists():
        change = change_of_images(labelled_paths(given.run), opened.images, config, provenance)
        if change:
            told = "not the images of %s any more: %s; the scores are those of the images there now"
            log.warning(told, given.run, change)
    return opened, labels
