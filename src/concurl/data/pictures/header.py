"""A picture's header: which format, how large, and whether it may be decoded at all."""

from __future__ import annotations

import functools
import io
import re
from typing import IO

from PIL import Image
from PIL.ImageFile import ImageFile

from concurl.data.pictures.content import HEAD, DecodeError, image_format
from concurl.data.pictures.tiff import check_channels, check_samples, first_directory, mended

MAX_PIXELS = 64_000_000  # below Pillow's warning at 89 million and its refusal at 179 million
MIN_SIDE = 8
MAX_SCANS = 200  # of a progressive JPEG; cameras and optimisers write some ten, and each costs a pass over all pixels

_MARKER = re.compile(rb"\xff([^\x00\x01\xd0-\xd7\xff])")  # begins a segment; coded data cannot hold one


def open_image(data: bytes, format: str) -> ImageFile:
    """The image, its size checked and no pixel decoded yet. Raises DecodeError, and nothing else."""
    if format == "WEBP":
        if len(data) < 30 or len(data) < 8 + int.from_bytes(data[4:8], "little"):
            raise DecodeError("truncated", f"{len(data):,} bytes, fewer than its header says")
        _check_size(*_webp_size(data))  # here, as Pillow allocates the canvas while opening
    if format in ("AVIF", "HEIF") and _boxes_end(data) > len(data):
        raise DecodeError("truncated", f"{len(data):,} bytes, fewer than its boxes take")
    if format == "HEIF":
        _learn_heif()
    if format == "JPEG" and _scans(data) > MAX_SCANS:
        raise DecodeError("too large", f"a JPEG in more than {MAX_SCANS} scans")
    stream = _Stream(data)
    try:
        image = Image.open(stream, formats=[format])
        if format == "TIFF":
            image = mended(image, stream)
    except DecodeError:
        raise
    except Exception as error:  # plugins raise nearly everything
        if format == "TIFF" and not stream.ran_out:
            tags = first_directory(data)
            check_channels(tags)
            check_samples(tags)
        raise failure(error, cut=stream.ran_out) from error
    _check_size(*image.size)
    return image


def image_size(file: IO[bytes]) -> tuple[int, int]:
    """(width, height); the file is read only as far as that takes."""
    head = file.read(HEAD)
    format = image_format(head)
    if format == "HEIF":
        _learn_heif()
    if format == "WEBP":
        return _webp_size(head)
    try:
        return Image.open(file, formats=[format]).size
    except Exception as error:
        raise failure(error, cut=False) from error


def failure(error: Exception, *, cut: bool) -> DecodeError:
    """What an exception of Pillow's says about the file."""
    if isinstance(error, MemoryError):
        return DecodeError("too large", "decoding it takes more memory than allowed")
    if isinstance(error, Image.DecompressionBombError):
        return DecodeError("too large", f"more than {MAX_PIXELS:,} pixels")
    text = " ".join(str(error).split()) or type(error).__name__
    if cut or "truncated" in text.lower():
        return DecodeError("truncated", "the file ends before the picture does")
    if "cannot identify image file" in text:
        text = "its header makes no sense"
    return DecodeError("unreadable", text[:200])


class _Stream(io.BytesIO):
    """Remembers whether anyone tried to read past the end."""

    ran_out = False

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.ran_out |= size is not None and len(data) < size
        return data


def _check_size(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise DecodeError("too large", f"{width} x {height}: more than {MAX_PIXELS:,} pixels")
    if min(width, height) < MIN_SIDE:
        raise DecodeError("too small", f"{width} x {height}: a side has fewer than {MIN_SIDE} pixels")


def _scans(data: bytes) -> int:
    """How often a JPEG goes over its pixels; counting stops just above the limit.

    Only markers between its segments and before its end count: a preview, or the film that phones put behind a
    photograph, may hold any bytes.
    """
    scans, place = 0, 2
    while scans <= MAX_SCANS and (marker := _MARKER.search(data, place)) and marker[1] != b"\xd9":
        scans += marker[1] == b"\xda"
        place = marker.end() + int.from_bytes(data[marker.end() : marker.end() + 2], "big")
    return scans


def _boxes_end(data: bytes) -> int:
    """Where the last of the file's boxes should end. (A box of length 0 reaches to the end of the file.)"""
    place = 0
    while place + 8 <= len(data) and (length := int.from_bytes(data[place : place + 4], "big")):
        if length == 1:  # the real one follows the box's name
            length = int.from_bytes(data[place + 8 : place + 16], "big")
        place += max(8, length)
    return place


@functools.cache
def _learn_heif() -> None:
    """Teach Pillow what phones call HEIC, with a package that not everyone needs."""
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        raise DecodeError(
            "unreadable", "HEIC: pip install pillow-heif to have it read, or convert it to JPEG"
        ) from None
    register_heif_opener()


def _webp_size(head: bytes) -> tuple[int, int]:
    kind = head[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        return int.from_bytes(head[26:28], "little") & 0x3FFF, int.from_bytes(head[28:30], "little") & 0x3FFF
    raise DecodeError("unreadable", "its header makes no sense")
