"""concurl predict"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from concurl.amounts import counted
from concurl.commands.options import Parser
from concurl.commands.refusals import check_file, check_folder, check_least, check_meaning, check_run
from concurl.errors import UserError, call
from concurl.progress import stages
from concurl.runs.clusternames import as_json, names_of
from concurl.runs.parts import Part

if TYPE_CHECKING:
    from concurl.data.imageset import ImageSet
    from concurl.network.trained import TrainedModel

log = logging.getLogger("concurl")


def main(argv: list[str]) -> int:
    """Label images, new ones or old, with the model of a run."""
    given, part = _given(argv)
    from concurl.runs.assignments import BLOCK, write_predictions
    from concurl.runs.run import model_of
    from concurl.runs.summary import read_summary

    names = names_of(given.run)  # before the pictures are decoded, as it may be refused
    trained = model_of(given.run, given.device)
    images = _open(given, trained)
    if trouble := read_summary(given.run).get("trouble"):
        log.warning("the run is not healthy: do not rely on these labels yet (%s); its page says what to try", trouble)
    if part is None:
        left_out = write_predictions(given.output, trained, images, range(len(images)), names)
        print(f"{counted(len(images), 'image')} labelled, {left_out:,} left out: {given.output}")
        return 0
    work = _work(trained, images, names)
    rows = part.share(len(images), BLOCK)
    if part.finished(given.output, work):
        print(f"part {part.number} of {part.of} was finished before: {part.csv(given.output)}")
        return 0
    given.output.mkdir(parents=True, exist_ok=True)
    left_out = write_predictions(part.csv(given.output), trained, images, rows, names)
    part.seal(given.output, work, len(rows), left_out)
    print(f"{len(rows):,} of {len(images):,} images labelled, {left_out:,} left out: {part.csv(given.output)}")
    return 0


def _given(argv: list[str]) -> tuple[argparse.Namespace, Part | None]:
    """What was asked for, checked before any work; with --shard, the part that is to be labelled."""
    parser = Parser(prog="concurl predict", description=main.__doc__, example="runs/photos NEW -o new.csv")
    parser.add_argument("run", type=Path, help="folder of a run, or a model folder")
    parser.add_argument("source", help="a picture, or as in concurl fit")
    parser.add_argument("-o", "--output", type=Path, metavar="PATH", help="csv to write, or folder of parts (needed)")
    parser.add_argument(
        "--shard",
        metavar="I/N",
        help="label only part I (from 1) of N, into the folder of -o; a finished part is left "
        "as it is. concurl merge joins the parts",
    )
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="where a benchmark's files are")
    parser.add_argument("--limit", type=int, metavar="N", help="only N of the images")
    parser.add_shared("--device", "--quiet")
    given = parser.parse(argv)
    if given.output is None:
        raise parser.missing("no output file; add -o FILE.csv")
    part = None if given.shard is None else Part.parse(given.shard)
    if part is None:
        check_file(given.output, "new.csv", given.source)
    else:
        check_folder(given.output, given.source)
    check_least("--limit", given.limit, 1)
    check_meaning(given.source, given.data_dir)
    if not (given.run / "model").is_dir() and Path(given.source, "model", "model.json").exists():
        raise UserError(f"the run comes first: {call('predict', given.source, given.run, '-o', given.output)}")
    check_run(given.run)
    return given, part


def _open(given: argparse.Namespace, trained: TrainedModel) -> ImageSet:
    """The images, each file as it was given, read as those that the model was trained on."""
    from concurl.data.pictures.reading import Reading
    from concurl.data.sources import open_source

    images = open_source(
        given.source,
        data_dir=given.data_dir,
        image_size=trained.image_size,
        reading=Reading.of(trained.config),
        limit=given.limit,
        progress=stages(),
    ).images.each_given()
    for line in images.summary.unusual():  # new pictures need not be like those of the run
        log.info("%s", line)
    return images


def _work(trained: TrainedModel, images: ImageSet, names: dict[int, str]) -> dict[str, Any]:
    """What parts must have in common to be joined."""
    table = hashlib.sha256()
    for name in chain(images.names, (skip.path for skip in images.skipped)):
        table.update(os.fsencode(name) + b"\0")
    return {"model": trained.digest(), "images": len(images), "paths": table.hexdigest(), "names": as_json(names)}
