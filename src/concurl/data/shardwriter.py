"""Any source as tar shards, WebDataset's layout: a few large files, where millions of small ones would be slow.

The bytes of each image go in as they are, under its own path. A shard appears under its name only when it is whole,
so an interrupted packing goes on with the first shard that is missing.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections import Counter
from pathlib import Path

from concurl.atomic import write_whole, written_aside
from concurl.data.files.entry import Entry, find_entry
from concurl.data.files.listing import Listing
from concurl.data.files.shardindex import beside, write_index
from concurl.data.files.shards import IMAGE_SUFFIXES, read_members
from concurl.data.pictures.content import DecodeError, read_content
from concurl.errors import UserError
from concurl.progress import Stages, silent

MANIFEST = ".shards.json"  # hidden: readers of the folder look only at the shards


def write_shards(listing: Listing, folder: Path, *, per_shard: int, progress: Stages = silent) -> Counter[str]:
    """Write shard-000000.tar and so on; how many files were packed, and how many left out, by reason."""
    _claim(folder, listing, per_shard)
    found: Counter[str] = Counter()
    for number, start in enumerate(range(0, len(listing), per_shard)):
        path = folder / f"shard-{number:06d}.tar"
        counts = folder / f".{path.stem}.json"
        packed = _finished(path, counts)
        if packed is None:
            packed = _write_shard(listing, listing[start : start + per_shard], path)
            shard = find_entry(os.fsencode(folder), os.fsencode(path.name))
            write_index(beside(path), shard, read_members(path)[0])  # read back: what a reader would find
            write_whole(counts, json.dumps(packed).encode())
        found += packed
        progress("pack", min(start + per_shard, len(listing)), len(listing))
    return found


def _finished(path: Path, counts: Path) -> Counter[str] | None:
    """What an earlier packing counted for this shard; None if it is to be made."""
    try:
        found = Counter({str(status): int(n) for status, n in json.loads(counts.read_bytes()).items()})
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None
    return found if path.exists() else None


def _write_shard(listing: Listing, entries: list[Entry], path: Path) -> Counter[str]:
    found: Counter[str] = Counter()
    with written_aside(path) as file, tarfile.open(fileobj=file, mode="w") as tar:
        for entry in entries:
            try:
                if entry.fault:
                    raise DecodeError("unreadable", entry.fault)
                if not entry.name.lower().endswith(IMAGE_SUFFIXES):  # a reader of shards would pass it over
                    raise DecodeError("not an image", "by its name")
                data = read_content(entry.path(listing.root), entry.start, entry.size if entry.shard else None)
            except DecodeError as error:
                found[error.status] += 1
                continue
            member = tarfile.TarInfo(_member(entry, listing.root))
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
            found["packed"] += 1
    return found


def _member(entry: Entry, root: str) -> str:
    """The name in the archive: it must not lead out of it, or no careful reader would take it."""
    name = entry.text
    if ".." in name.split("/"):  # a list may name files beside its own folder
        name = os.path.normpath(os.path.join(root, name))
    return name.lstrip("/")


def _claim(folder: Path, listing: Listing, per_shard: int) -> None:
    """Shards of one source and one size to a folder, or a later packing would join what does not belong together."""
    table = hashlib.sha256(f"{listing.root}\0{per_shard}".encode(errors="surrogateescape"))
    for entry in listing:
        table.update(repr(tuple(entry)).encode())
    manifest = folder / MANIFEST
    claim = json.dumps({"source": listing.source, "per_shard": per_shard, "key": table.hexdigest()}).encode()
    if manifest.exists() and manifest.read_bytes() != claim:
        raise UserError(
            f"{folder} holds shards of another source, size, or state of the files; choose another folder with -o"
        )
    if not manifest.exists() and (strangers := sorted(folder.glob("shard-*.tar"))):
        raise UserError(f"{strangers[0]} is not one of ours, and would be replaced; choose another folder with -o")
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(manifest, claim)
