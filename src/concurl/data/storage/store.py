"""The packed copy: all images of a source in one memory-mapped file, so that a second run starts at once.

Two files for each source, in a folder of the caller's choice: SLOT.npy with uint8 (N, 3, side, side), and
SLOT.jsonl with the key, one line for each file of the source (used or not), and the number of images with a
hash of the lines. The jsonl comes last, so an interrupted packing leaves nothing that looks finished.

The key sees each file's name, length and time of last change (in nanoseconds), the side, how it is
read and the version of the decoder. It does not see contents: those are hashed while packing and kept
in the rows, but to hash them again would be to read everything again. So a file that is overwritten with as
many bytes and has its old time set back, or exchanges its name with one of its length and time, goes unnoticed;
any other change makes a new pack, in place of the old one.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import mmap
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from concurl.atomic import cannot_write, disk_full, lock, written_aside
from concurl.data.files.listing import Listing
from concurl.data.pictures.decode import VERSION
from concurl.errors import RunError, UserError

log = logging.getLogger("concurl")

# No option names this folder, so none can be the remedy.
_REMEDY = "set XDG_CACHE_HOME to a folder for the cache that can be written to"
_LAYOUT = 1  # raise it when these files change their form


@dataclass(frozen=True)
class Slot:
    """The place of one source's pack, and the key of what should be in it."""

    folder: Path
    name: str
    key: str

    @property
    def pixels(self) -> Path:
        return self.folder / f"{self.name}.npy"

    @property
    def rows(self) -> Path:
        return self.folder / f"{self.name}.jsonl"


@dataclass(frozen=True)
class Pack:
    """A finished packing."""

    images: NDArray[np.uint8]  # (N, 3, side, side), memory-mapped, read-only
    text: mmap.mmap  # the rows' file: it stays with these images, even if another process packs anew meanwhile

    def rows(self) -> Iterator[dict[str, Any]]:
        """One for each file, in order; the images are those of the rows whose status is ok."""
        self.text.seek(0)
        self.text.readline()
        line = self.text.readline()
        while following := self.text.readline():
            yield json.loads(line)
            line = following


def default_folder() -> Path:
    """Where packs are kept if the caller names no folder."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "concurl"
    except RuntimeError:  # a user whom the machine does not know, as in a container
        raise UserError(f"there is no home folder to keep packed images in; {_REMEDY}") from None


def find_slot(folder: Path, listing: Listing, **settings: Any) -> Slot:
    """The slot of a source that is read with these settings (side, reading, ...)."""
    # A path in one form, however it was written; other sources (patterns, lists) in the user's words.
    source = os.path.abspath(listing.source) if os.path.lexists(listing.source) else listing.source
    fixed = json.dumps([_LAYOUT, VERSION, listing.root, source, sorted(settings.items())])
    table = hashlib.sha256(fixed.encode())
    name = table.hexdigest()[:16]
    for entry in listing:
        table.update(repr(tuple(entry)).encode())
    return Slot(folder, name, table.hexdigest())


def open_pack(slot: Slot) -> Pack | None:
    """The pack, if it is there, whole, and of these very files."""
    try:
        with open(slot.rows, "rb") as file:
            text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            images = np.lib.format.open_memmap(slot.pixels, mode="r")  # np.load would also open archives of arrays
            # write_pack removes the old rows before it replaces the pixels: while they are in place, they belong together.
            replaced = not os.path.samestat(os.fstat(file.fileno()), os.stat(slot.rows))
    except (OSError, ValueError, EOFError, RecursionError, MemoryError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:  # made anew, it would be no smaller
            raise RunError(f"{slot.pixels} does not fit into the address space; raise its limit (ulimit -v)") from error
        return None
    first, end = _line({"key": slot.key}), text.rfind(b"\n", 0, -1) + 1
    if replaced or text[: len(first)] != first:
        return None
    with memoryview(text) as whole:
        last = _last_line(len(images), hashlib.sha256(whole[:end]).hexdigest())
    return Pack(images, text) if text[end:] == last else None


def write_pack(
    slot: Slot, side: int, most: int, stream: Iterable[tuple[dict[str, Any], NDArray[np.uint8] | None]]
) -> None:
    """Pack the stream: a row for each file, with pixels if it is used; at most `most` of them."""
    needed = most * 3 * side * side
    # Written as a stream and not through a memory map: there a full disk is a signal that ends the process.
    with written_aside(slot.rows, remedy=_REMEDY) as rows, written_aside(slot.pixels, needed, _REMEDY) as pixels:
        if shutil.disk_usage(slot.folder).free < needed:
            raise disk_full(slot.pixels, needed, remedy=_REMEDY)
        _write_npy_header(pixels, most, side)
        line = _line({"key": slot.key})
        rows.write(line)
        count, lines = 0, hashlib.sha256(line)
        for row, image in stream:
            line = _line(row)
            rows.write(line)
            lines.update(line)
            if image is not None:
                pixels.write(image.tobytes())
                count += 1
        rows.write(_last_line(count, lines.hexdigest()))
        pixels.seek(0)
        _write_npy_header(pixels, count, side)
        slot.rows.unlink(missing_ok=True)  # the old rows must not stand beside the new pixels


@contextmanager
def locked(slot: Slot) -> Iterator[None]:
    """Only one process at a time packs a source; the others wait, and find its pack."""
    path = slot.folder / f".{slot.name}.lock"
    try:
        slot.folder.mkdir(parents=True, exist_ok=True)
        file = open(path, "wb")  # noqa: SIM115
    except OSError as error:
        raise cannot_write(error, path, remedy=_REMEDY) from error
    with file:
        try:
            lock(file)
        except BlockingIOError:  # the wait may take hours, in which nothing else would be said
            log.info("another process decodes these images: waiting for its packed copy")
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _last_line(count: int, hashed: str) -> bytes:
    return _line({"images": count, "sha256": hashed})


def _write_npy_header(file: IO[bytes], count: int, side: int) -> None:
    """Equally long for any number of images (numpy leaves room for the axis to grow), so that it can be written again."""
    shape = (count, 3, side, side)
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
