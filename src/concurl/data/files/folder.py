"""A folder's files, at any depth."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from concurl.data.files.entry import Entry, PathLike, find_entry
from concurl.data.files.shards import is_shard, list_members


def walk(
    root: bytes,
    *,
    enter: Callable[[bytes], bool] = lambda _: True,
    exclude: Collection[PathLike] = (),
    cache: Path | None = None,
) -> Iterator[Entry]:
    """All files below, by the bytes of their names, in the folders that `enter` lets in; shards give their members.

    Hidden files and folders (.DS_Store, .thumbnails) are left out. Links are followed, but no folder is entered
    twice, so a loop of links ends; and none of `exclude`. cache: see `list_members`.
    """
    seen = {_inode(root), *(_inode(path) for path in exclude if os.path.isdir(path))}
    stack = [iter(_sorted_names(root, b""))]
    while stack:
        name = next(stack[-1], None)
        if name is None:
            stack.pop()
        elif not name.endswith(b"/"):
            yield find_entry(root, name)
        elif is_shard(name[:-1]) and not os.path.isdir(os.path.join(root, name)):
            yield from list_members(root, name[:-1], cache)
        elif enter(name[:-1]):
            try:
                if (folder := _inode(os.path.join(root, name))) not in seen:
                    seen.add(folder)
                    stack.append(iter(_sorted_names(root, name)))
            except OSError as error:
                yield Entry(name, 0, 0, fault=f"a folder that cannot be read: {error.strerror}")


def _sorted_names(root: bytes, folder: bytes) -> list[bytes]:
    """The folder's names, those with more below them with a slash: it makes them sort as whole paths do."""
    names = []
    with os.scandir(os.path.join(root, folder)) as entries:
        for entry in entries:
            if not entry.name.startswith(b"."):
                slash = b"/" if is_shard(entry.name) or _is_folder(entry) else b""
                names.append(folder + entry.name + slash)
    return sorted(names)


def _inode(folder: PathLike | bytes) -> tuple[int, int]:
    """What tells a folder from all others, by whichever path it was reached."""
    found = os.stat(folder)
    return found.st_dev, found.st_ino


def _is_folder(entry: os.DirEntry[bytes]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or to where nobody may look: its own row says so, and its neighbours are read
        return False
