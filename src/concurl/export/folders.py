"""A folder per cluster, and one for the images the ensemble is unsure of."""

from __future__ import annotations

import logging
import os
import shutil
import unicodedata
from collections import Counter
from collections.abc import Callable
from itertools import compress
from pathlib import Path

from concurl.atomic import FULL, disk_full
from concurl.data.files.lists import LIST_SUFFIXES
from concurl.errors import UserError
from concurl.runs.clusternames import names_of, read_names
from concurl.runs.provenance import Provenance
from concurl.runs.spreadsheet import read_assignments

log = logging.getLogger("concurl")

UNSURE_FOLDER = "unsure"
WAYS = ("symlink", "hardlink", "copy")


def export_folders(
    run: Path, output: Path, *, how: str, names: Path | None = None, root: Path | None = None
) -> dict[str, int]:
    """Fill `output` with links to (or copies of) the run's images; returns folder -> number of images.

    root: the folder that the images' paths are relative to, if it is no longer the one in run.json.
    """
    if how not in WAYS:
        raise UserError(f"--folders {how}: choose symlink, hardlink or copy")
    provenance = Provenance.read(run)
    if root is None:
        if provenance.root is None:
            raise _nothing_to_link(run)
        root = Path(provenance.root)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"{output} is not an empty folder; choose another one with -o")
    named = read_names(names) if names else names_of(run)
    found = _found(run, root)
    listed = provenance.source.lower().endswith(LIST_SUFFIXES)  # its folder is not the images' own
    if not listed and output.resolve().is_relative_to(root.resolve()):
        raise UserError(
            f"-o {output}: nothing is written into {root}, the images' own folder; choose one outside of it"
        )
    top = _top(root, [file for _, file in found])
    folders = {cluster: _folder(int(cluster), named) for cluster in {row["cluster"] for row, _ in found}}
    counts: Counter[str] = Counter()
    made: list[Path] = []
    try:
        for row, file in found:
            folder = UNSURE_FOLDER if row["status"] == "unsure" else folders[row["cluster"]]
            # with its folders, as two of them may hold files of the same name
            made.append(output / folder / os.path.relpath(file, top))
            _put(file, made[-1], how)
            counts[folder] += 1
    except BaseException:  # a full disk, or Ctrl-C: the next try wants an empty folder
        for target in made:
            target.unlink(missing_ok=True)
            _remove_empty(target.parent, output)
        raise
    return dict(counts)


def _put(file: Path, target: Path, how: str) -> None:
    ways: dict[str, Callable[[Path, Path], object]]
    ways = {"symlink": os.symlink, "hardlink": os.link, "copy": shutil.copyfile}
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        ways[how](file.resolve(), target)
    except OSError as error:
        if error.errno in FULL:
            raise disk_full(target, file.stat().st_size) from error
        other = "another folder with -o" if how == "copy" else "--folders copy"
        raise UserError(f"{target}: {how} failed ({error.strerror}); try {other}") from None


def _found(run: Path, root: Path) -> list[tuple[dict[str, str], Path]]:
    """The rows of assignments.csv whose images are still there, with their files."""
    rows = [(row, root / row["path"]) for row in read_assignments(run)]
    there = [file.is_file() for _, file in rows]
    found = list(compress(rows, there))
    if not all(there):
        row, file = rows[there.index(False)]
        shard = any(parent.is_file() for parent in file.parents)
        if shard and not found:
            raise _nothing_to_link(run)
        where = "in tar shards, or gone" if shard else f"not in {root}"
        gone = f"{where}: {there.count(False):,} of the run's {len(rows):,} images, the first {row['path']!r}"
        if not found:
            raise UserError(f"{gone}; if they moved, give their place with --source")
        log.warning("%s; left out", gone)
    return found


def _remove_empty(folder: Path, top: Path) -> None:
    while folder != top and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def _folder(cluster: int, named: dict[int, str]) -> str:
    """The folder of a cluster. Clusters with the same name share the folder of the first."""
    given = named.get(cluster, "")
    first = min((other for other, name in named.items() if name == given), default=cluster) if given else cluster
    letters = unicodedata.normalize("NFC", given)
    name = "".join(sign if _keeps(sign) else "_" for sign in letters).strip(" .")[:80]
    return f"{first:03d}" + (f" {name}" if name else "")


def _keeps(sign: str) -> bool:
    """May a folder's name have it? Letters and their marks, as Hindi and Thai have them, digits and a few others."""
    return sign.isalnum() or sign in "_ .-" or unicodedata.category(sign).startswith("M")


def _top(root: Path, files: list[Path]) -> Path:
    """The folder that paths in the output are relative to, so that none leaves it: a list may name files anywhere."""
    shared = Path(os.path.commonpath([os.path.dirname(os.path.abspath(file)) for file in files]))
    return root if shared.is_relative_to(root) else shared


def _nothing_to_link(run: Path) -> UserError:
    return UserError(
        f"{run}: its images were not files in a folder, so there is nothing to link to or copy; the cluster of each is in "
        f"{run / 'assignments.csv'}"
    )
