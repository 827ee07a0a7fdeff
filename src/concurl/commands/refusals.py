"""Wrong use that is refused before any work begins: one line that names the remedy."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from concurl.atomic import cannot_write
from concurl.errors import UserError, call, no_such


def check_run(folder: Path) -> None:
    """Refuse a run that is not there, is no folder, or was stopped before its end."""
    if not folder.exists():
        raise no_such(folder)
    if not folder.is_dir():
        inside = f": {folder.parent}" if (folder.parent / "config.json").exists() else ""
        raise UserError(f"{folder} is a file; give the run's folder{inside}")
    if (folder / "config.json").exists() and not any((folder / name).exists() for name in ("model", "assignments.csv")):
        raise UserError(
            f"{folder}: the run is not finished; wait for it, or go on with {call('fit', '--resume', '-o', folder)}"
        )


def check_meaning(source: str, data_dir: Path | None) -> None:
    """Refuse a word that may mean two things: the one that was not meant would be trained on, or labelled."""
    from concurl.data.benchmarks import BENCHMARKS

    if data_dir is None and source in BENCHMARKS and os.path.lexists(source):
        raise UserError(
            f"{source} is a benchmark, and a path here: write ./{source} for the folder, or add --data-dir DIR for the "
            "benchmark"
        )


def check_labels(labels: Path | None, source: str) -> None:
    """Refuse folders as the labels of a benchmark: the names of its images would tell train from test."""
    from concurl.data.benchmarks import BENCHMARKS

    if labels is not None and str(labels) == "folders" and not labels.is_file() and source in BENCHMARKS:
        raise UserError(f"--labels folders: {source} has labels of its own; leave this out")


def check_least(option: str, value: int | None, least: int) -> None:
    """Refuse a number below `least`; None is an option that was not given."""
    if value is not None and value < least:
        raise UserError(f"{option} {value}: at least {least} {'are' if least > 1 else 'is'} needed")


def check_folder(output: Path, source: str | Path | None = None) -> None:
    """Refuse a file, a link to nothing, the root, or a place inside `source`, the images' own folder, which is only read."""
    for path in (output, *output.parents):
        if path.is_symlink() and not path.exists():
            raise no_such(path)
    if output.exists() and not output.is_dir():
        raise UserError(f"{output} is a file; name a folder with -o")
    if output.resolve() == Path("/"):
        raise UserError(f"-o {output} is the root of the whole disk; name a folder in it")
    _check_writable(output)
    _check_outside(output, source)


# What other programs take for a promise of what is in the file.
_FORMATS = (
    *(".csv", ".tsv", ".xlsx", ".xls", ".ods", ".parquet", ".gz", ".zip"),
    *(".json", ".html", ".pdf", ".pt2", ".onnx"),
)


def check_file(output: Path, name: str, *inputs: str | Path | None) -> None:
    """Refuse a place where no file can or may be written; `name` is one for the example, `inputs` are only read."""
    if output.is_dir():
        raise UserError(f"{output} is a folder; name a file with -o, such as {output / name}")
    # A file is renamed into its place when it is whole: root would be left without a /dev/null.
    if (output.exists() and not output.is_file()) or output.absolute().parent == Path("/dev"):
        raise UserError(f"{output} is a device or a pipe, and would be replaced; name a file with -o, such as {name}")
    if not output.parent.is_dir():
        raise UserError(
            f"{output.parent}: no such folder to write {output.name} to; make it, or choose another with -o"
        )
    for given in inputs:
        if given is not None and output.exists() and os.path.exists(given) and os.path.samefile(output, given):
            raise UserError(f"-o {output} is what is read, and would be replaced; choose another file")
    if (output.parent / "run.json").exists():
        from concurl.runs.runfolder import FILES  # it imports torch, which takes long: only where it is needed

        if output.name in {*FILES, "run.json", "names.json"} - {"report.html"}:  # the page can be made again
            raise UserError(f"-o {output} is a file of the run itself, and would be replaced; choose another one")
    ours, suffix = Path(name).suffix, output.suffix.lower()
    if {".htm": ".html"}.get(suffix, suffix) != ours:
        other = f"name a file such as {output.with_suffix(ours)}"
        if output.exists():  # a picture, or a script: the shell completes such a name easily
            raise UserError(f"-o {output} is there already, and only a {ours} would be replaced; {other}")
        if suffix in _FORMATS:
            raise UserError(f"-o {output} would hold {ours[1:]}; {other}")
    _check_writable(output)
    for given in inputs:
        _check_outside(output, given)


def _check_outside(output: Path, source: str | Path | None) -> None:
    from concurl.data.files.pattern import fixed_folder, is_pattern

    own = fixed_folder(str(source)) if source is not None and is_pattern(str(source)) else source
    if own is not None and os.path.isdir(own) and output.resolve().is_relative_to(Path(own).resolve()):
        raise UserError(f"-o {output}: nothing is written into {own}, the images' own folder; choose one outside of it")


def _check_writable(output: Path) -> None:
    """The folder, or the one in which it would be made, takes files: better asked now than after the work."""
    place = next(path for path in (output, *output.absolute().parents) if path.is_dir())
    if not os.access(place, os.W_OK | os.X_OK):
        kind = errno.EROFS if os.statvfs(place).f_flag & os.ST_RDONLY else errno.EACCES
        raise cannot_write(OSError(kind, os.strerror(kind)), output)
