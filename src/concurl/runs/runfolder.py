"""A run's folder: made, locked and begun, its small files written and read."""

from __future__ import annotations

import json
import logging
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import concurl
from concurl.atomic import cannot_write, lock, write_whole
from concurl.config import Config
from concurl.csvfile import csv_lines
from concurl.data.imageset import Skipped
from concurl.errors import UserError, call
from concurl.network.trained import FILES as MODEL_FILES
from concurl.runs.provenance import Provenance
from concurl.training.checkpoint import KEPT, checkpoints
from concurl.training.device import Arithmetic
from concurl.training.runlog import LogFile
from concurl.training.trainer import CHECKPOINTS, FEATURES

log = logging.getLogger("concurl")

BAD_BATCH = "nan-batch.txt"
MODEL = "model"
PAGE = 15_000_000  # bytes; the largest report.html
FILES = (
    *("config.json", "environment.json", "metrics.jsonl", "summary.json", "assignments.csv", "skipped.csv"),
    *("embeddings.npy", "report.html", "train.log", BAD_BATCH),
)  # all that a run writes, besides run.json and what is in its folders


@contextmanager
def run_folder(folder: Path, *, resume: bool, overwrite: bool) -> Iterator[Path]:
    """The folder, made and locked: a second run in it, at the same time or by mistake, is refused."""
    check_place(folder, resume=resume, overwrite=overwrite)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = open(folder / ".lock", "w")  # noqa: SIM115 (for the whole run)
    except OSError as error:
        raise cannot_write(error, folder) from None
    with held:
        try:
            lock(held)
        except BlockingIOError:
            raise UserError(
                f"{folder}: another process is running there; wait for it or choose another folder"
            ) from None
        writer = LogFile(folder / "train.log")
        log.addHandler(writer)
        try:
            if not resume:
                _clear(folder)
            yield folder
        finally:
            log.removeHandler(writer)


def check_place(folder: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse a folder with nothing to resume, with a run that nobody said to replace, or with files of the user's."""
    if resume and not holds_run(folder):
        raise UserError(f"{folder} holds no run to resume; leave --resume out to start one")
    if resume and finished(folder) and not checkpoints(folder / CHECKPOINTS):
        raise UserError(  # they may be deleted then, and it would be trained all over again
            f"{folder} is finished, and its {CHECKPOINTS}/ are gone: there is nothing to go on with; make its page by "
            f"{call('report', folder)}, labels by concurl predict, or train it anew with --overwrite instead of --resume"
        )
    if holds_run(folder) and not resume and not overwrite:
        replace = "add --overwrite to replace it"
        if finished(folder):
            raise UserError(
                f"{folder} already holds a run, which is finished; name another folder with -o, or {replace}"
            )
        go_on = call("fit", "--resume", "-o", folder)
        raise UserError(f"{folder} already holds a run; go on with it: {go_on}, or {replace}")
    if found := _strangers(folder):
        raise UserError(
            f"{folder}: a run would replace {', '.join(found)}, which none has written; choose another folder with -o"
        )


def holds_run(folder: Path) -> bool:
    """Is there a run that can be resumed, or be lost?"""
    return _begun(folder) and (folder / "config.json").exists()


def finished(folder: Path) -> bool:
    """Does it hold all that a run ends with?"""
    return all((folder / name).exists() for name in (f"{MODEL}/model.json", "assignments.csv", "summary.json"))


def _begun(folder: Path) -> bool:
    """Was a run begun here? Its run.json comes first and stays to the end; a config.json alone may be someone else's."""
    try:
        Provenance.read(folder)
    except UserError:
        return False
    return True


def _strangers(folder: Path) -> list[str]:
    """Files that a run would replace, though no run has written them. Empty ones, as a kill may leave them, do not count."""
    if _begun(folder):  # all is a run's then, except in the model's folder, which is replaced as a whole
        inner = sorted(path.name for path in (folder / MODEL).glob("*"))
        return [f"{MODEL}/{name}" for name in inner if name not in MODEL_FILES]
    names = [*FILES, "run.json", MODEL, CHECKPOINTS, FEATURES]
    paths = {name: folder / name for name in names if (folder / name).exists()}
    return [name for name, path in paths.items() if (any(path.iterdir()) if path.is_dir() else path.stat().st_size)]


def _clear(folder: Path) -> None:
    """Remove what a run writes, and nothing else that may lie there.

    run.json stays until the next one takes its place: after a kill in between, the folder is still known as a run's.
    """
    names = folder / "names.json"
    named = holds_run(folder) and names.exists()
    if named:
        names.replace(folder / "names.json.old")
    for name in FILES:
        (folder / name).unlink(missing_ok=True)
    for name in MODEL_FILES:
        (folder / MODEL / name).unlink(missing_ok=True)
    for inner in (CHECKPOINTS, FEATURES):
        for step in checkpoints(folder / inner):
            shutil.rmtree(step, ignore_errors=True)
    for inner in (MODEL, CHECKPOINTS, FEATURES):
        with suppress(OSError):  # it is not there, or holds something else
            (folder / inner).rmdir()
    if named:
        log.warning("%s is now names.json.old: it names the clusters of the run that is replaced", names)


def write_start(
    folder: Path, config: Config, provenance: Provenance, skipped: Sequence[Skipped], *, command: str
) -> None:
    """run.json (where the images came from), an origin's features, environment.json, skipped.csv and config.json."""
    write_text(folder / "run.json", provenance.to_json())  # first: it marks the folder as ours
    if provenance.origin is not None:
        _take_features(Path(provenance.origin), folder)
    write_text(folder / "environment.json", json.dumps(environment(config) | {"command": command}, indent=2) + "\n")
    rows = [("path", "status", "reason"), *((s.path, s.status, s.reason) for s in skipped)]
    write_whole(folder / "skipped.csv", b"".join(csv_lines(rows)))
    write_text(folder / "config.json", config.to_json())  # last: a folder that has it holds a run that can be resumed


def warn_of_little_room(folder: Path, state: Mapping[str, Tensor], n_images: int, embedding_dim: int) -> None:
    """Say it at the start, and not in the night, if the disk cannot take what the run will write."""
    # To the state at the start come the optimiser's momenta, at most two for each trained number. At times there is one
    # checkpoint more than are kept, beside the one in which clustering began and the finished model.
    trained = ("model.online.", "model.predictor.", "model.prototypes")
    momenta = 2 * sum(tensor.nbytes for name, tensor in state.items() if name.startswith(trained))
    checkpoint = sum(tensor.nbytes for tensor in state.values()) + momenta
    image = 4 * embedding_dim + 200  # its embedding, and its row in assignments.csv
    needed = checkpoint * (KEPT + 3) + n_images * image + PAGE
    # A run that goes on has written some of it already.
    own = [folder / name for name in FILES]
    own += [path for name in (MODEL, CHECKPOINTS, FEATURES) for path in (folder / name).rglob("*")]
    there = sum(path.stat().st_size for path in own if path.is_file())
    free = shutil.disk_usage(folder).free
    if free + there < needed:
        log.warning(
            "%s: %s MB are free on its disk, and the run may write %s more. Make room while it trains; where there is none, it "
            "stops, and goes on with --resume",
            folder,
            f"{free / 1e6:,.0f}",
            f"{(needed - there) / 1e6:,.0f}",
        )


def _take_features(origin: Path, folder: Path) -> None:
    """Copy what the run in `folder` needs to be resumed from where clustering began in `origin`."""
    try:
        for step in checkpoints(origin / FEATURES):
            (folder / FEATURES / step.name).mkdir(parents=True, exist_ok=True)
            for file in step.iterdir():  # not by copytree, which would make a copy that nobody may write, or delete
                shutil.copyfile(file, folder / FEATURES / step.name / file.name)
        if (origin / "metrics.jsonl").exists():  # its curves are worth having, and not needed
            shutil.copyfile(origin / "metrics.jsonl", folder / "metrics.jsonl")
    except OSError as error:
        raise cannot_write(error, folder) from None


def environment(config: Config) -> dict[str, str]:
    """Versions and hardware, for environment.json."""
    return {
        "concurl": concurl.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "device": str(Arithmetic.of(config)),
        "system": f"{platform.system()} {platform.machine()}",
    }


def config_of(folder: Path) -> Config:
    """The run's config.json."""
    path = folder / "config.json"
    if not path.exists():
        raise UserError(f"{folder} holds no run (no config.json); give the folder that concurl fit wrote")
    return Config.from_json(path)


def write_text(path: Path, text: str) -> None:
    """Write it whole or not at all; bytes of names that are not UTF-8 stay as they are."""
    write_whole(path, text.encode(errors="surrogateescape"))
