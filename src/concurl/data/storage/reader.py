"""A listing's files as images: from the packed copy of an earlier reading, or decoded now and packed."""

from __future__ import annotations

import errno
import os
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concurl.amounts import counted
from concurl.data.checking.audit import Row, Summary, inspect
from concurl.data.files.entry import find_entry
from concurl.data.files.listing import Listing
from concurl.data.files.names import Names
from concurl.data.imageset import Given, ImageSet, Skipped
from concurl.data.pictures.content import DecodeError, read_content
from concurl.data.pictures.reading import OWN, Reading
from concurl.data.storage.sizes import choose_side, measure_sizes
from concurl.data.storage.store import Pack, Slot, default_folder, find_slot, locked, open_pack, write_pack
from concurl.errors import RunError, UserError
from concurl.progress import Stages, silent

_DISK_FAULTS = {os.strerror(code) for code in errno.errorcode}


def read_files(paths: Sequence[Path], size: int, *, root: Path, progress: Stages = silent) -> ImageSet:
    """A benchmark's files at side `size`, sorted by their names below `root`. Copies stay in: its protocol counts them."""
    top = os.path.abspath(root)
    entries = sorted(find_entry(os.fsencode(top), bytes(path.relative_to(root))) for path in paths)
    listing = Listing(f"the {len(paths)} given paths", top, entries)
    return read_listing(listing, size, default_folder(), keep_duplicates=True, progress=progress)


def read_listing(
    listing: Listing,
    size: int | None,
    folder: Path,
    *,
    reading: Reading = OWN,
    keep_duplicates: bool = False,
    workers: int | None = None,
    progress: Stages = silent,
    largest: int | None = None,
    **more: Any,  # what else sets this pack apart from others of the same source
) -> ImageSet:
    """All usable images of the listing, at side `size` or one chosen from their own sizes; packs are kept in `folder`."""
    if not listing:
        raise UserError(f"no images in {listing.source}: no files at all (hidden ones are not looked at)")
    # The pack is known by its side, however that was chosen: predict and --resume name the side that fit has found.
    side = size or choose_side(measure_sizes(listing, workers), largest)
    # Whoever installs the package for HEIC later gets those pictures too, and not the old pack without them.
    more["heic"] = find_spec("pillow_heif") is not None
    slot = find_slot(folder, listing, side=side, reading=astuple(reading), keep_duplicates=keep_duplicates, **more)
    if (pack := _kept(slot, listing)) is not None:
        return _image_set(pack, listing, reused=True)
    with locked(slot):
        if (pack := _kept(slot, listing)) is not None:  # another process made it while this one waited
            return _image_set(pack, listing, reused=True)
        results = inspect(
            listing,
            side,
            reading=reading,
            keep_duplicates=keep_duplicates,
            workers=workers,
            progress=progress,
        )
        write_pack(slot, side, len(listing), _records(results, listing))
        if (pack := open_pack(slot)) is None:
            raise RunError(f"{slot.pixels} was changed while it was written: leave {folder} to concurl")
        return _image_set(pack, listing, reused=False)


def _kept(slot: Slot, listing: Listing) -> Pack | None:
    """The pack; None if a file can be read now that could not be then. (A chmod leaves its length and time as they were.)"""
    pack = open_pack(slot)
    if pack is None or pack.text.find(b'"unreadable"') < 0:
        return pack
    for row, entry in zip(pack.rows(), listing, strict=True):
        if row["reason"] in _DISK_FAULTS:
            with suppress(DecodeError):
                read_content(entry.path(listing.root), entry.start, entry.size if entry.shard else None)
                return None
    return pack


def _records(
    results: Iterator[tuple[Row, NDArray[np.uint8] | None]], listing: Listing
) -> Iterator[tuple[dict[str, Any], NDArray[np.uint8] | None]]:
    """The results as they go into the pack; an end without any image is an error, and leaves no pack."""
    summary = Summary()
    for row, pixels in results:
        summary.add(row)
        yield vars(row), pixels  # asdict would copy it deeply, which takes longer than all the rest here
    if not summary.statuses["ok"]:
        raise _no_images(listing, summary)


def _image_set(pack: Pack, listing: Listing, *, reused: bool) -> ImageSet:
    names, skipped, summary = Names(), [], Summary()
    places = array("q")  # of each file: which image it is, or -1
    for record in pack.rows():
        row = Row(**record)
        summary.add(row)
        places.append(len(names) if row.status == "ok" else -1)
        if row.status == "ok":
            names.append(row.path)
        else:
            skipped.append(Skipped(row.path, row.status, row.reason))
    if summary.statuses["duplicate"]:
        _place_copies(pack, places)
    return ImageSet(pack.images, names, skipped, _given(listing, places), summary, listing.root, reused)


def _place_copies(pack: Pack, places: array[int]) -> None:
    """Give each copy the place of its first. The rows are read once more, as a table of all hashes would take much memory."""
    copied = {row["sha"] for row in pack.rows() if row["status"] == "duplicate"}
    firsts: dict[str, int] = {}
    for file, row in enumerate(pack.rows()):
        if row["sha"] in copied and row["status"] in ("ok", "duplicate"):
            places[file] = firsts.setdefault(row["sha"], places[file])


def _given(listing: Listing, places: array[int]) -> Given | None:
    """The readable files, as they were given; None where they are the images, one after the other."""
    files = np.arange(len(places)) if listing.listed is None else np.asarray(listing.listed)
    files = files[np.asarray(places)[files] >= 0]
    index = np.asarray(places)[files]
    if np.array_equal(index, np.arange(max(places) + 1)):
        return None
    names = Names()
    for file in files:
        names.append(listing[file].text)
    return Given(names, index)


def _no_images(listing: Listing, summary: Summary) -> UserError:
    suffixes = Counter(os.path.splitext(entry.text)[1].lower() or "without a suffix" for entry in listing)
    found = ", ".join(f"{count:,} {suffix}" for suffix, count in suffixes.most_common(6))
    read_as = "".join(f"; {n:,} {status} ({summary.examples[status]})" for status, n in summary.statuses.items())
    # The paths of an audit's csv, for one, start from the folder that was looked through.
    lost = "; a list's paths start from its own folder, or from the current one"
    hint = lost if listing.listed is not None and all(entry.fault for entry in listing) else ""
    return UserError(f"no images in {listing.source}: {counted(len(listing), 'file')}, of them {found}{read_as}{hint}")
