"""What a tar shard holds and where: kept in a file of its own, so that a million members are not read anew each time.

`concurl pack` leaves one beside every shard it writes (hidden: .shard-000000.tar.index); for shards of other tools one is made
on first use, in the cache. It holds for one length and one time of last change (in nanoseconds) of the shard, and carries
a checksum: an index that does not fit is passed over and made again. It saves time and decides nothing: names are
judged where they are read, and bytes by the decoder.

One line of json (layout, shard's size and mtime_ns, checksum of the rest), then the number of members and four more for each
of them (size, start, whether it is sparse, where its name ends), all int64, then the names.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from concurl.atomic import write_whole
from concurl.data.files.entry import Entry
from concurl.errors import RunError, UserError

_LAYOUT = 3  # raise it when other members are found


class Member(NamedTuple):
    """A regular file in a tar."""

    name: bytes
    size: int
    start: int  # of its bytes
    sparse: bool = False


def beside(shard: Path) -> Path:
    """The index that `concurl pack` has written, if it did."""
    return shard.with_name(f".{shard.name}.index")


def in_cache(shard: Path, folder: Path) -> Path:
    """The index made when a shard of another tool was first read."""
    return folder / "shards" / f"{hashlib.sha256(os.fsencode(os.path.abspath(shard))).hexdigest()[:24]}.index"


def read_index(path: Path, shard: Entry) -> Iterator[Member] | None:
    """The members, in the order they were written; None unless the file is whole and of this very shard."""
    try:
        with open(path, "rb") as file:
            head, rest = json.loads(file.readline(1000)), file.read()
        if head != _head(shard, rest):
            return None
        count = int(np.frombuffer(rest, "<i8", 1)[0])
        numbers = np.frombuffer(rest, "<i8", 4 * count, offset=8).reshape(-1, 4)
    except (OSError, ValueError, RecursionError):
        return None
    names = rest[8 + numbers.nbytes :]
    return _members(numbers.tolist(), names) if _sound(numbers, names, shard) else None


def write_index(path: Path, shard: Entry, members: list[Member]) -> None:
    """Keep the members found in `shard`, as it was before it was read. If that fails, the shard is read again next time."""
    ends = np.cumsum([len(member.name) for member in members], dtype=np.int64)
    numbers = [(m.size, m.start, int(m.sparse), int(end)) for m, end in zip(members, ends, strict=True)]
    rest = np.array([len(members), *itertools.chain(*numbers)], dtype="<i8").tobytes()
    rest += b"".join(member.name for member in members)
    with suppress(OSError, RunError, UserError):  # the last also where another rank is writing it
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(_head(shard, rest)).encode() + b"\n" + rest)


def _head(shard: Entry, rest: bytes) -> dict[str, int | str]:
    checksum = hashlib.sha256(rest).hexdigest()
    return {"layout": _LAYOUT, "size": shard.size, "mtime_ns": shard.mtime_ns, "sha256": checksum}


def _sound(numbers: NDArray[np.int64], names: bytes, shard: Entry) -> bool:
    """Do all members lie within the shard, and all names within the names? Anyone can write a valid checksum."""
    size, start, _, end = numbers.T
    within = (size >= 0) & (start >= 0) & (start <= shard.size) & (size <= shard.size - start)
    ends = np.concatenate([[0], end])
    return bool(within.all() and (np.diff(ends) >= 0).all() and ends[-1] == len(names))


def _members(numbers: list[list[int]], names: bytes) -> Iterator[Member]:
    begin = 0
    for size, start, sparse, end in numbers:
        yield Member(names[begin:end], size, start, bool(sparse))
        begin = end
