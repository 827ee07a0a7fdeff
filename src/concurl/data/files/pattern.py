"""Globs: *, ?, [...] and ** over a folder's files."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from concurl.data.files.entry import Entry, PathLike
from concurl.data.files.folder import walk
from concurl.errors import UserError, no_such


def is_pattern(source: str) -> bool:
    """Does it hold one of *, ? and [?"""
    return any(sign in source for sign in "*?[")


def fixed_folder(pattern: str) -> str:
    """The folder before the first *, ? or [. In the name of an existing folder, such as "photos [2020]", these are letters."""
    parts = pattern.split("/")
    fixed = 0
    while fixed < len(parts) and (not is_pattern(parts[fixed]) or os.path.isdir("/".join(parts[: fixed + 1]))):
        fixed += 1
    return "/".join(parts[:fixed])


def split_pattern(pattern: str) -> tuple[str, list[str]]:
    """The folder before the first *, ? or [, and the parts to match below it.

    A last part of * also takes all files in the folders that it matches, as if the shell had put in their names.
    """
    fixed = fixed_folder(pattern)
    wanted = [part for part in pattern[len(fixed) :].split("/") if part]
    if not wanted:
        raise no_such(pattern)
    root = os.path.abspath(fixed or ("/" if pattern.startswith("/") else "."))
    if not os.path.isdir(root):
        raise UserError(f"{pattern!r}: {root} is not a folder; check the part before the first *, ? or [")
    if wanted[-1] in ("*", "**"):
        wanted[-1:] = ["**", "*"]
    return root, wanted


def find_matches(
    root: bytes, wanted: list[str], exclude: Collection[PathLike], cache: Path | None = None
) -> Iterator[Entry]:
    """The files that match; of a shard that does, all members."""

    def enter(folder: bytes) -> bool:
        # No others: a folder is entered once only, and a link might lead into it under a name that does not match.
        return _leads_to(os.fsdecode(folder).split("/"), wanted)

    for entry in walk(root, enter=enter, exclude=exclude, cache=cache):
        if _matches(os.fsdecode(entry.name[: entry.shard or None]).split("/"), wanted):
            yield entry


def _matches(parts: list[str], wanted: list[str]) -> bool:
    if not wanted or not parts:
        return not wanted and not parts
    if wanted[0] == "**":
        return any(_matches(parts[i:], wanted[1:]) for i in range(len(parts)))
    return fnmatch.fnmatchcase(parts[0], wanted[0]) and _matches(parts[1:], wanted[1:])


def _leads_to(parts: list[str], wanted: list[str]) -> bool:
    """Can what lies in this folder match?"""
    if not parts or wanted[0] == "**":
        return True
    return len(wanted) > 1 and fnmatch.fnmatchcase(parts[0], wanted[0]) and _leads_to(parts[1:], wanted[1:])
