"""What a tar shard holds and where: kept in a file of its own, so that a million members are not read anew each time.

`concurl pack` leaves one beside every shard it writes (hidden: .shard-000000.tar.index); for shards of other tools one is made
on first use, in the cache. It holds for one length and one time of last change (in nanoseconds) of the shard, and carries
a checksum: an index that does not fit is passed over and made again. It saves time and decides nothing: names are
judged where they are read, and bytes by the decoder.

Two lines of json: layout, shard's size and mtime_ns, checksum of the rest; then [name, size, start, sparse] for each member.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from concurl.aside import write_whole
from concurl.data.files.entry import Entry
from concurl.errors import RunError, UserError

_LAYOUT = 4  # raise it when other members are found


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


def read_index(path: Path, shard: Entry) -> list[Member] | None:
    """The members, in the order they were written; None unless the file is whole and of this very shard."""
    try:
        head, _, rest = path.read_bytes().partition(b"\n")
        if json.loads(head) != _head(shard, rest):
            return None
        rows = json.loads(rest)
        members = [Member(os.fsencode(name), int(size), int(start), bool(sparse)) for name, size, start, sparse in rows]
    except (OSError, ValueError, TypeError, OverflowError, RecursionError):  # anyone can write a valid checksum
        return None
    within = all(member.size >= 0 and 0 <= member.start <= shard.size - member.size for member in members)
    return members if within else None


def write_index(path: Path, shard: Entry, members: list[Member]) -> None:
    """Keep the members found in `shard`, as it was before it was read. If that fails, the shard is read again next time."""
    rest = json.dumps([(os.fsdecode(name), *facts) for name, *facts in members]).encode()
    with suppress(OSError, RunError, UserError):  # the last also where another rank is writing it
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(_head(shard, rest)).encode() + b"\n" + rest)


def _head(shard: Entry, rest: bytes) -> dict[str, int | str]:
    checksum = hashlib.sha256(rest).hexdigest()
    return {"layout": _LAYOUT, "size": shard.size, "mtime_ns": shard.mtime_ns, "sha256": checksum}
