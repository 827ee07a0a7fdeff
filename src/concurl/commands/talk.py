"""What the verbs share: how a run speaks, and how it opens its images again."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

from concurl.data.aside import cannot_write
from concurl.data.lists import LIST_SUFFIXES
from concurl.errors import UserError, call, no_such
from concurl.options import Parser
from concurl.progress import AboveBars, OneLine, stages

if TYPE_CHECKING:
    from concurl.config import Config
    from concurl.data.imageset import Opened

log = logging.getLogger("concurl")


def speak(quiet: bool) -> None:
    """Progress and warnings go to stderr, results to stdout. Of the processes of torchrun only the first speaks.

    It is stderr that is quiet, and not the log: train.log keeps everything.
    """
    first = os.environ.get("RANK", "0") == "0"
    stderr = AboveBars(sys.stderr)
    stderr.setFormatter(OneLine())
    stderr.setLevel(logging.ERROR if not first else logging.WARNING if quiet else logging.INFO)
    logging.basicConfig(handlers=[stderr], force=True)
    log.setLevel(logging.INFO)


def add_moved(parser: Parser) -> None:
    # Not dest="source": the parser takes that for the images of a verb that opens new ones.
    parser.add_argument("--source", dest="moved", metavar="PLACE", help="where the run's images are now, if they moved")


def moved_to(about: dict[str, Any], place: str | None) -> dict[str, Any]:
    """What run.json says, with another place for the images if one was given; the file stays as it is."""
    if about["data_dir"] is not None and not os.path.isdir(about["data_dir"]):
        about = about | {"data_dir": None}  # then they are where they would be looked for today
    if place is not None:
        return about | {"source": absolute(place), "called_in": os.getcwd()}
    if os.path.isabs(about["source"]) and not _there(about["source"]):
        raise UserError(f"{about['source']}: the run's images are not there any more; give their place with --source")
    return about


def _there(source: str) -> bool:
    """Is it on the disk still? Of a pattern, the folder before its first sign."""
    from concurl.data.pattern import fixed_folder, is_pattern

    return os.path.lexists(source) or (is_pattern(source) and os.path.isdir(fixed_folder(source)))


def absolute(source: str) -> str:
    """A run may be resumed from elsewhere; a benchmark's name stays a name."""
    from concurl.data.benchmarks import BENCHMARKS
    from concurl.data.pattern import is_pattern

    if source in BENCHMARKS:
        return source
    path = os.path.expanduser(source)
    return os.path.abspath(path) if os.path.lexists(path) or is_pattern(path) else source


def open_again(about: dict[str, Any], config: Config, workers: int | None = None, largest: int | None = None) -> Opened:
    """The images that run.json names."""
    from concurl.data.opened import open_source
    from concurl.data.reading import Reading

    data_dir = None if about["data_dir"] is None else Path(about["data_dir"])
    with chdir(_paths_start(about)):
        return open_source(
            about["source"],
            data_dir=data_dir,
            image_size=config.image_size,
            reading=Reading.of(config),
            limit=about["limit"],
            workers=workers,
            largest=largest,
            progress=stages(),
        )


def _paths_start(about: dict[str, Any]) -> str:
    """The folder that fit was called in, where the images are a list: its paths may start from there."""
    folder = str(about.get("called_in", "")) if about["source"].lower().endswith(LIST_SUFFIXES) else ""
    return folder if os.path.isdir(folder) else os.curdir


def change_of_images(folder: Path, names: Sequence[str]) -> str:
    """How these images differ from those that the run has labelled; empty if they do not."""
    from concurl.report.facts import RunFacts, shown

    labelled, found = list(RunFacts.read(folder).paths), [shown(name) for name in names]
    changes = {"gone": set(labelled) - set(found), "new": set(found) - set(labelled)}
    told = [f"{len(paths):,} {what}, such as {min(paths)}" for what, paths in changes.items() if paths]
    return " and ".join(told) or ("" if labelled == found else "another order")


def check_run(folder: Path) -> None:
    """Refuse, before any work, a run that is not there, is no folder, or was stopped before its end."""
    if not folder.exists():
        raise no_such(folder)
    if not folder.is_dir():
        raise UserError(f"{folder} is a file; give the run's folder: {folder.parent}")
    if (folder / "config.json").exists() and not any((folder / name).exists() for name in ("model", "assignments.csv")):
        raise UserError(f"{folder}: the run is not finished; go on with {call('fit', '--resume', '-o', folder)}")


def check_meaning(source: str, data_dir: Path | None) -> None:
    """Refuse a word that may mean two things: the one that was not meant would be trained on, or labelled."""
    from concurl.data.benchmarks import BENCHMARKS

    if data_dir is None and source in BENCHMARKS and os.path.lexists(source):
        raise UserError(
            f"{source} is a benchmark, and a path here: write ./{source} for the folder, or add --data-dir DIR for the "
            "benchmark"
        )


def check_workers(workers: int | None) -> None:
    if workers is not None and workers < 0:
        raise UserError(f"--workers {workers}: 0 (no process but this one) or more is needed")


def check_limit(limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise UserError(f"--limit {limit}: at least 1 is needed")


def check_folder(output: Path, source: str | Path | None = None) -> None:
    """Refuse, before any work, a folder that is a file, the root, or one inside the pictures' own, which is only read."""
    if output.exists() and not output.is_dir():
        raise UserError(f"{output} is a file; name a folder with -o")
    if output.resolve() == Path("/"):
        raise UserError(f"-o {output} is the root of the whole disk; name a folder in it")
    _check_writable(output)
    _check_outside(output, source)


def check_file(output: Path, name: str, source: str | Path | None = None) -> None:
    """Refuse, before any work, a place where no file can or may be written; `name` is one for the example."""
    if output.is_dir():
        raise UserError(f"{output} is a folder; name a file with -o, such as {output / name}")
    # A file is renamed into its place when it is whole: root would be left without a /dev/null.
    if (output.exists() and not output.is_file()) or output.absolute().parent == Path("/dev"):
        raise UserError(f"{output} is a device or a pipe, and would be replaced; name a file with -o, such as {name}")
    if not output.parent.is_dir():
        raise UserError(
            f"{output.parent}: no such folder to write {output.name} to; make it, or choose another with -o"
        )
    if source is not None and output.exists() and os.path.exists(source) and os.path.samefile(output, source):
        raise UserError(f"-o {output} is what names the images, and would be replaced; choose another file")
    if output.name in ("assignments.csv", "skipped.csv") and (output.parent / "run.json").exists():
        raise UserError(f"-o {output} is a table of the run itself, and would be replaced; choose another file")
    _check_writable(output)
    _check_outside(output, source)


def _check_outside(output: Path, source: str | Path | None) -> None:
    if source is not None and os.path.isdir(source) and output.resolve().is_relative_to(Path(source).resolve()):
        raise UserError(
            f"-o {output}: nothing is written into {source}, the images' own folder; choose one outside of it"
        )


def _check_writable(output: Path) -> None:
    """The folder, or what it would be made in, takes files: better asked now than after the work."""
    place = next(path for path in (output, *output.absolute().parents) if path.is_dir())
    if not os.access(place, os.W_OK | os.X_OK):
        kind = errno.EROFS if os.statvfs(place).f_flag & os.ST_RDONLY else errno.EACCES
        raise cannot_write(OSError(kind, os.strerror(kind)), output)


def write_report(folder: Path, opened: Opened) -> Path:
    from concurl.report import write_report as write

    return write(folder, opened.images.images, labels=opened.labels, classes=opened.classes, progress=stages())
