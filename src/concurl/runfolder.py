"""A run's folder: made, locked and begun, its small files written and read."""

from __future__ import annotations

import csv
import fcntl
import io
import itertools
import json
import logging
import platform
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

import concurl
from concurl.config import Config
from concurl.data.aside import cannot_write, write_whole
from concurl.data.imageset import Skipped
from concurl.errors import UserError
from concurl.network.model import Model
from concurl.training.checkpoint import load_newest
from concurl.training.device import Arithmetic
from concurl.training.runlog import LogFile
from concurl.training.trainer import CHECKPOINTS, FEATURES

log = logging.getLogger("concurl")

BAD_BATCH = "nan-batch.txt"


@contextmanager
def run_folder(folder: Path, *, resume: bool, overwrite: bool) -> Iterator[Path]:
    """The folder, made and locked: a second run in it, at the same time or by mistake, is refused."""
    holds_run = (folder / "config.json").exists()
    if holds_run and not resume and not overwrite:
        raise UserError(f"{folder} already holds a run; add --resume to go on with it or --overwrite to replace it")
    if resume and not holds_run:
        raise UserError(f"{folder} holds no run to resume; leave --resume out to start one")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; name a folder for the run")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / ".lock", "w")  # noqa: SIM115 (held for the whole run)
    except OSError as error:
        raise cannot_write(error, folder) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(
                f"{folder}: another process is running there; wait for it or choose another folder"
            ) from None
        if overwrite:
            _clear(folder)
        writer = LogFile(folder / "train.log")
        log.addHandler(writer)
        try:
            yield folder
        finally:
            log.removeHandler(writer)


def _clear(folder: Path) -> None:
    """Remove what a run writes, and nothing else that may lie there."""
    for name in (CHECKPOINTS, FEATURES, "model"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in ("config.json", "run.json", "environment.json", "metrics.jsonl", "summary.json", "assignments.csv"):
        (folder / name).unlink(missing_ok=True)
    for name in ("skipped.csv", "embeddings.npy", "report.html", "train.log", BAD_BATCH):
        (folder / name).unlink(missing_ok=True)


def write_start(folder: Path, config: Config, about: dict[str, Any], skipped: Sequence[Skipped]) -> None:
    """run.json (where the images came from), environment.json, skipped.csv and config.json."""
    write_text(folder / "run.json", json.dumps(about, indent=2) + "\n")
    write_text(folder / "environment.json", json.dumps(environment(config), indent=2) + "\n")
    rows = [(s.path, s.status, s.reason) for s in skipped]
    write_text(folder / "skipped.csv", csv_text(("path", "status", "reason"), rows))
    write_text(folder / "config.json", config.to_json())  # last: a folder that has it holds a run that can be resumed


def has_features(folder: Path) -> bool:
    """Did clustering begin in this run, after something had been learned, and is that state still sound?"""
    return load_newest(folder / FEATURES) is not None


def feature_model(folder: Path, config: Config) -> Model:
    """The networks as they were when clustering began, or at the end of a run that never clusters; untrained prototypes."""
    place = folder / (FEATURES if config.clusters else CHECKPOINTS)
    found = load_newest(place)
    if found is None:
        why = "they are damaged" if place.exists() else "its clusters began with the first step (see --cluster-start)"
        raise UserError(f"{folder} has no features to look at: {why}")
    model = Model(config)
    weights = {name.removeprefix("model."): t for name, t in found[0].items() if name.startswith("model.")}
    try:
        model.load_state_dict(weights | {"prototypes": model.prototypes})  # those kept may be of a run with another K
    except RuntimeError:
        raise UserError(f"{folder}: its features do not belong to its config.json; bring the right one back") from None
    return model


def take_features(origin: Path, folder: Path) -> None:
    """Let the run in `folder` go on from where clustering began in `origin`: it is to be resumed then."""
    try:
        shutil.copytree(origin / FEATURES, folder / FEATURES, dirs_exist_ok=True)
        if (origin / "metrics.jsonl").exists():  # its curves are worth having, and not needed
            shutil.copyfile(origin / "metrics.jsonl", folder / "metrics.jsonl")
    except OSError as error:
        raise cannot_write(error, folder) from None


def environment(config: Config) -> dict[str, str]:
    return {
        "concurl": concurl.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "device": str(Arithmetic.of(config)),
        "system": f"{platform.system()} {platform.machine()}",
        "command": " ".join(["concurl", *sys.argv[1:]]),
    }


def config_of(folder: Path) -> Config:
    path = folder / "config.json"
    if not path.exists():
        raise UserError(f"{folder} holds no run (no config.json); give the folder that concurl fit wrote")
    try:
        return Config.from_json(path)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except (OSError, ValueError, TypeError, RecursionError):
        raise UserError(f"{path}: cannot be read as a configuration; bring it back, or start anew") from None


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    return "".join(csv_lines(columns, rows))


def csv_lines(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Lines end in a newline; a name that holds one, or a carriage return, is quoted and stays one field."""
    for row in itertools.chain([columns] if columns else [], rows):
        line = io.StringIO(newline="")
        csv.writer(line, lineterminator="\r\n").writerow(row)  # told "\n" alone, it would leave "\r" unquoted
        yield line.getvalue().removesuffix("\r\n") + "\n"


def write_text(path: Path, text: str) -> None:
    """A reader, or the next run, never meets half a file."""
    write_whole(path, text.encode(errors="surrogateescape"))


def read_names(folder: Path) -> dict[int, str]:
    """names.json, if the user gave the clusters names: {"0": "birds", ...}."""
    path = folder / "names.json"
    if not path.exists():
        return {}
    try:
        return {int(k): str(v) for k, v in json.loads(path.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        raise UserError(f'{path}: an object like {{"0": "birds", "1": "cars"}} is needed') from None
