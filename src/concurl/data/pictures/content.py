"""A file's bytes. Nothing about it is trusted: not its name, not its size, not even that it is a regular file."""

from __future__ import annotations

import os
import stat

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "AVIF", "HEIF")
HEAD = 64  # bytes that tell the format
MAX_BYTES = 512 * 2**20  # 64 megapixels of 16-bit RGBA, uncompressed: nothing within the pixel cap needs more

_SIGNATURES = {
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"BM": "BMP",
    b"GIF87a": "GIF",
    b"GIF89a": "GIF",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"II+\0": "TIFF",
    b"MM\0+": "TIFF",
}
# Files made of boxes list their brands in the first box. (mif1 and msf1 are the container's own.)
_BRANDS = {
    "AVIF": {b"avif", b"avis"},
    "HEIF": {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"},
}


class DecodeError(Exception):
    """This file gives no image. `status` is one of audit's words, `reason` says why in one line."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(f"{status}: {reason}")
        self.status = status
        self.reason = reason


def image_format(data: bytes) -> str:
    """The format by its first bytes; the file's name has no say."""
    if not data:
        raise DecodeError("empty", "0 bytes")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    for signature, name in _SIGNATURES.items():
        if data.startswith(signature):
            return name
    if data[4:8] == b"ftyp":
        end = min(int.from_bytes(data[:4], "big"), HEAD)
        brands = {data[8:12], *(data[at : at + 4] for at in range(16, end, 4))}
        for name, known in _BRANDS.items():
            if brands & known:
                return name
        raise DecodeError("not an image", "a video, or a kind of picture that is not read")
    raise DecodeError("not an image", f"none of {', '.join(FORMATS)} by its first bytes")


def read_content(path: str, start: int = 0, length: int | None = None) -> bytes:
    """All bytes of a file, or `length` of them from `start` on (a member of an archive)."""
    try:
        # O_NONBLOCK, as opening a named pipe would otherwise wait for a writer for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise DecodeError("unreadable", "not a regular file")
            file.seek(start)
            head = file.read(HEAD if length is None else min(HEAD, length))
            image_format(head)  # before the rest is read: a film may lie among the pictures
            wanted = found.st_size - start if length is None else length
            if wanted > MAX_BYTES:
                raise DecodeError("too large", f"{wanted:,} bytes; at most {MAX_BYTES:,} are read")
            file.seek(start)
            data = file.read(wanted)
    except OSError as error:
        raise DecodeError("unreadable", error.strerror or str(error)) from error
    if len(data) < wanted:
        raise DecodeError("truncated", f"{len(data):,} of {wanted:,} bytes")
    return data
