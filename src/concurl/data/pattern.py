"""Globs: *, ?, [...] and ** over a folder's files."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from concurl.data.entry import Entry
from concurl.data.folder import Inode, walk
from concurl.errors import UserError


def is_pattern(source: str) -> bool:
    return any(sign in source for sign in "*?[")


def split_pattern(pattern: str) -> tuple[str, list[str]]:
    """The folder before the first sign, and the parts to match below it.

    A last part of * takes in whatever lies below, as it would if the shell replaced it by folders.
    """
    parts = pattern.split("/")
    fixed = next(i for i, part in enumerate(parts) if is_pattern(part))
    root = os.path.abspath("/".join(parts[:fixed]) or ("/" if pattern.startswith("/") else "."))
    if not os.path.isdir(root):
        raise UserError(f"{pattern!r}: {root} is not a folder; check the part before the first *, ? or [")
    wanted = [part for part in parts[fixed:] if part]
    if wanted[-1] in ("*", "**"):
        wanted[-1:] = ["**", "*"]
    return root, wanted


def find_matches(
    root: bytes, wanted: list[str], exclude: Collection[Inode], cache: Path | None = None
) -> Iterator[Entry]:
    """The files that match; of a shard that does, all members."""
    depth = None if "**" in wanted else len(wanted)
    for entry in walk(root, depth=depth, exclude=exclude, cache=cache):
        if _matches(os.fsdecode(entry.name[: entry.shard or None]).split("/"), wanted):
            yield entry


def _matches(parts: list[str], wanted: list[str]) -> bool:
    if not wanted or not parts:
        return not wanted and not parts
    if wanted[0] == "**":
        return any(_matches(parts[i:], wanted[1:]) for i in range(len(parts)))
    return fnmatch.fnmatchcase(parts[0], wanted[0]) and _matches(parts[1:], wanted[1:])
