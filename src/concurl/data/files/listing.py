"""Which files a source means: a folder, a glob, a list, a csv, tar shards, or several paths."""

from __future__ import annotations

import os
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import overload

from concurl.data.files.entry import Entry, PathLike, find_entry
from concurl.data.files.folder import walk
from concurl.data.files.lists import LIST_SUFFIXES, read_paths
from concurl.data.files.names import Names
from concurl.data.files.pattern import find_matches, is_pattern, split_pattern
from concurl.data.files.shards import is_shard, list_members
from concurl.errors import UserError, no_such

_COMPRESSED = (".gz", ".tgz", ".bz2", ".xz", ".zst", ".zip", ".7z", ".rar")


class Listing(Sequence[Entry]):
    """The files, each once, sorted by the bytes of their names. One takes some 40 bytes, and its name."""

    def __init__(self, source: str, root: str, entries: Iterable[Entry]) -> None:
        self.source = source  # in the user's words
        self.root = root  # absolute; the files' names are relative to it, or absolute
        self.listed: Sequence[int] | None = None  # of a list: for each of its lines, which of the files it names
        self._names = Names()
        self._numbers = array("q")  # size, mtime_ns, shard, start: four for each file
        self._faults: dict[int, str] = {}
        last = None
        for entry in entries:
            if entry.name == last:
                continue
            last = entry.name
            if entry.fault:
                self._faults[len(self)] = entry.fault
            self._names.append(entry.name)
            self._numbers.extend((entry.size, entry.mtime_ns, entry.shard, entry.start))

    @classmethod
    def of_list(cls, source: str, root: str, entries: Sequence[Entry]) -> Listing:
        """Sorted by name like any other, which training needs; `listed` keeps the list's own order, for its labels."""
        listing = cls(source, root, sorted(entries))
        place = {name: file for file, name in enumerate(sorted({entry.name for entry in entries}))}
        listing.listed = array("q", [place[entry.name] for entry in entries])
        return listing

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> list[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | list[Entry]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        size, mtime_ns, shard, start = self._numbers[4 * place : 4 * place + 4]
        return Entry(self._names.encoded(place), size, mtime_ns, shard, start, self._faults.get(place, ""))

    @property
    def sizes(self) -> array[int]:
        return self._numbers[::4]


def list_source(
    source: PathLike | Iterable[PathLike], *, exclude: Collection[PathLike] = (), cache: Path | None = None
) -> Listing:
    """The files that `source` means; a folder among several paths stands for all it holds.

    exclude: folders that are not entered (a run's own, a cache).
    cache: folder for what shards were found to hold (see shardindex.py).
    """
    if isinstance(source, str | os.PathLike):
        return _list_one(os.path.expanduser(os.fspath(source)), exclude, cache)
    paths = [Path(os.path.expanduser(item)) for item in source]
    if not paths:
        raise UserError("no paths were given: name a folder or at least one file")
    absolute = [os.path.abspath(path) for path in paths]
    top = os.path.commonpath([os.path.dirname(path) for path in absolute])
    root = os.fsencode(top)
    entries: list[Entry] = []
    for path in map(os.fsencode, absolute):
        entries += _expanded(root, _relative(path, root), exclude, cache)
    title = str(paths[0]) if len(paths) == 1 else f"the {len(paths)} given paths"
    return Listing.of_list(title, top, entries)


def _list_one(source: str, exclude: Collection[PathLike], cache: Path | None) -> Listing:
    path = os.path.abspath(source)
    folder, name = os.path.split(path)
    root = os.fsencode(folder)
    if os.path.isdir(path):
        return Listing(source, path, walk(os.fsencode(path), exclude=exclude, cache=cache))
    if os.path.exists(path):
        if source.lower().endswith(LIST_SUFFIXES):
            return Listing.of_list(source, folder, list(_listed(root, read_paths(path))))
        if source.lower().endswith(_COMPRESSED):
            raise UserError(f"{source}: compressed archives are not read; unpack it, or make it a plain .tar")
        return Listing(source, folder, _expanded(root, os.fsencode(name), exclude, cache))
    if is_pattern(source):
        base, wanted = split_pattern(source)
        return Listing(source, base, find_matches(os.fsencode(base), wanted, exclude, cache))
    raise no_such(source)


def _expanded(root: bytes, name: bytes, exclude: Collection[PathLike], cache: Path | None) -> Iterator[Entry]:
    path = os.path.join(root, name)
    if os.path.isdir(path):
        prefix = os.path.join(name, b"")
        for entry in walk(path, exclude=exclude, cache=cache):
            yield entry._replace(name=prefix + entry.name, shard=entry.shard and len(prefix) + entry.shard)
    elif is_shard(name):
        yield from list_members(root, name, cache)
    else:
        yield find_entry(root, name)


def _listed(root: bytes, names: Iterable[bytes]) -> Iterator[Entry]:
    """A list's paths are relative to the list's own folder or else to the current one."""
    for name in names:
        entry = find_entry(root, os.fsencode(Path(os.fsdecode(name))))  # Path: without ./ and //
        if entry.fault and os.path.exists(name):
            entry = find_entry(root, os.path.abspath(name))
        yield entry._replace(name=_relative(entry.name, root))


def _relative(path: bytes, root: bytes) -> bytes:
    """The path below root; one that lies elsewhere stays as it is."""
    return path.removeprefix(os.path.join(root, b""))
