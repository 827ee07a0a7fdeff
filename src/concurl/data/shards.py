"""Tar shards, WebDataset's layout: images read where they lie, nothing is unpacked."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator

from concurl.data.entry import Entry, find_entry

IMAGE_SUFFIXES = (b".jpg", b".jpeg", b".png", b".webp", b".bmp", b".tif", b".tiff", b".gif")


def is_shard(name: bytes) -> bool:
    return name.lower().endswith(b".tar")


def list_members(root: bytes, name: bytes) -> Iterator[Entry]:
    """The shard's images, named "shard.tar/member", by their names' bytes.

    Only members that are called images count: the others are what WebDataset stores beside each image (.json,
    .cls, .txt). A damaged shard gives the members before the damage, and an entry that names the damage.
    """
    shard = find_entry(root, name)
    if shard.fault:
        yield shard
        return
    members: dict[bytes, Entry] = {}  # of two members with one name the later is valid, as in any tar
    fault = ""
    try:
        with tarfile.open(os.path.join(os.fsdecode(root), os.fsdecode(name)), "r:", errors="surrogateescape") as tar:
            for member in tar:
                tar.members = []  # type: ignore[attr-defined]  # or it remembers all of them
                entry = _entry(shard, member)
                if entry is not None:
                    members[entry.name] = entry
    except (tarfile.TarError, OSError, ValueError, OverflowError) as error:
        fault = f"a damaged archive: {' '.join(str(error).split())}"
    if fault:
        yield shard._replace(fault=fault)
    for key in sorted(members):
        yield members[key]


def _entry(shard: Entry, member: tarfile.TarInfo) -> Entry | None:
    inner = os.fsencode(member.name).removeprefix(b"./")
    if not member.isreg() or not inner.lower().endswith(IMAGE_SUFFIXES):
        return None
    # A name is only a label here; but exports make files by it.
    leaves = inner.startswith(b"/") or b".." in inner.split(b"/")
    fault = "its name leaves the archive" if leaves else ""
    if member.sparse is not None:
        fault = "stored with holes (sparse): repack the archive without them"
    return Entry(
        name=shard.name + b"/" + inner,
        size=member.size,
        mtime_ns=shard.mtime_ns,
        shard=len(shard.name),
        start=member.offset_data,
        fault=fault,
    )
