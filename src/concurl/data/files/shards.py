"""Tar shards, WebDataset's layout: images read where they lie, nothing is unpacked."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from concurl.data.files.entry import Entry, find_entry
from concurl.data.files.shardindex import Member, beside, in_cache, read_index, write_index

IMAGE_SUFFIXES = tuple(b".jpg .jpeg .png .webp .bmp .tif .tiff .gif .avif .heic .heif".split())


def is_shard(name: bytes) -> bool:
    """By the name alone."""
    return name.lower().endswith(b".tar")


def list_members(root: bytes, name: bytes, cache: Path | None = None) -> Iterator[Entry]:
    """The shard's images, named "shard.tar/member", by their names' bytes.

    Only members that are called images count: the others are what WebDataset stores beside each image (.json,
    .cls, .txt). A damaged shard gives the members before the damage, and an entry that names the damage.

    cache: folder for the index of a shard that has none beside it; None to read such a shard anew each time.
    """
    shard = find_entry(root, name)
    if shard.fault:
        yield shard
        return
    path = Path(os.fsdecode(root), os.fsdecode(name))
    kept = None if cache is None else in_cache(path, cache)
    members = read_index(beside(path), shard)
    if members is None and kept is not None:
        members = read_index(kept, shard)
    if members is None:
        found, fault = read_members(path)
        if fault:
            yield shard._replace(fault=fault)
        elif kept is not None:
            write_index(kept, shard, found)
        members = iter(found)
    for member in members:
        yield _entry(shard, member)


def read_members(path: Path) -> tuple[list[Member], str]:
    """The tar's images, by the bytes of their names, and what is wrong with it, if anything is."""
    members: dict[bytes, Member] = {}  # of two members with one name the later is valid, as in any tar
    fault = ""
    try:
        with open(path, "rb") as file, tarfile.open(fileobj=file, mode="r:", errors="surrogateescape") as tar:
            for member in tar:
                tar.members = []  # type: ignore[attr-defined]  # or it remembers all of them
                name, link = (os.fsencode(path).removeprefix(b"./") for path in (member.name, member.linkname))
                if not name.lower().endswith(IMAGE_SUFFIXES):
                    continue
                if member.isreg():
                    members[name] = Member(name, member.size, member.offset_data, member.sparse is not None)
                elif member.islnk() and link in members:  # tar keeps a file of several names once
                    members[name] = members[link]._replace(name=name)
            file.seek(tar.offset)  # tarfile takes any header that it cannot read for the end, which is zeros or nothing
            if file.read(tarfile.BLOCKSIZE).strip(b"\0"):
                fault = f"a damaged archive: what follows its first {tar.offset:,} bytes cannot be read"
    except (tarfile.TarError, OSError, ValueError, OverflowError) as error:
        fault = f"a damaged archive: {' '.join(str(error).split())}"
    return [members[name] for name in sorted(members)], fault


def _entry(shard: Entry, member: Member) -> Entry:
    # A name is only a label here; but exports make files by it.
    leaves = member.name.startswith(b"/") or b".." in member.name.split(b"/")
    fault = "its name leaves the archive" if leaves else ""
    if member.sparse:
        fault = "stored with holes (sparse): repack the archive without them"
    return Entry(
        name=shard.name + b"/" + member.name,
        size=member.size,
        mtime_ns=shard.mtime_ns,
        shard=len(shard.name),
        start=member.start,
        fault=fault,
    )
