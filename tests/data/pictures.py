"""Image files made for tests: by Pillow where it can, by hand where it cannot write what others do."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from pillow_heif import register_heif_opener

from concurl.data.pictures.content import DecodeError
from concurl.data.pictures.decode import decode

register_heif_opener()  # here to write them


def encoded(image: Image.Image, format: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


def scene(height: int = 64, width: int = 64, seed: int = 0) -> NDArray[np.uint8]:
    """(H, W, 3): a gradient, coloured blobs and a little noise; no symmetry."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    image = np.stack([255 * x / width, 255 * y / height, 80 + 0 * x], -1)
    for _ in range(6):
        cy, cx, radius = rng.uniform(0, height), rng.uniform(0, width), rng.uniform(2, height / 3)
        image[(y - cy) ** 2 + (x - cx) ** 2 < radius**2] = rng.uniform(0, 255, 3)
    return (image + rng.uniform(-4, 4, image.shape)).clip(0, 255).astype(np.uint8)


def png(rows: NDArray[Any], bits: int, colour_type: int) -> bytes:
    """A PNG of any depth from samples (H, W) or (H, W, C)."""
    height, width = rows.shape[:2]
    samples = rows.astype(">u2" if bits == 16 else "u1").reshape(height, -1)
    raw = b"".join(b"\0" + row.tobytes() for row in samples)
    header = struct.pack(">IIBBBBB", width, height, bits, colour_type, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in ((b"IHDR", header), (b"IDAT", zlib.compress(raw)), (b"IEND", b""))
    )


def png_bomb(side: int) -> bytes:
    """A valid black PNG of side x side, some 0.1% of its size in memory."""
    return png(np.zeros((side, side), np.uint8), 8, 0)


def tiff(
    data: bytes,
    width: int,
    height: int,
    bits: int,
    *,
    photometric: int = 1,
    sample_format: int = 1,
    compression: int = 1,
    order: str = "<",
    channels: int = 1,
    extra: int = 0,
    planar: bool = False,
) -> bytes:
    """A TIFF around sample bytes; its directory comes first. `extra`: how many of the channels are no colour."""
    planes = channels if planar else 1
    length = len(data) // planes
    values: dict[int, tuple[str, Sequence[int]]] = {
        256: ("I", [width]),
        257: ("I", [height]),
        258: ("H", [bits] * channels),
        259: ("H", [compression]),
        262: ("H", [photometric]),
        273: ("I", range(0, len(data), length)),
        277: ("H", [channels]),
        278: ("I", [height]),
        279: ("I", [length] * planes),
        284: ("H", [2 if planar else 1]),
        **({338: ("H", [0] * extra)} if extra else {}),
        339: ("H", [sample_format] * channels),
    }
    end = 8 + 2 + 12 * len(values) + 4
    packed = {tag: struct.pack(f"{order}{len(numbers)}{kind}", *numbers) for tag, (kind, numbers) in values.items()}
    begin = end + sum(len(field) for field in packed.values() if len(field) > 4)
    packed[273] = struct.pack(f"{order}{planes}I", *(begin + start for start in values[273][1]))
    directory, beyond = struct.pack(order + "H", len(values)), b""  # the numbers that it has no room for come behind it
    for tag, (kind, numbers) in values.items():
        directory += struct.pack(order + "HHI", tag, {"H": 3, "I": 4}[kind], len(numbers))
        if len(packed[tag]) > 4:
            directory += struct.pack(order + "I", end + len(beyond))
            beyond += packed[tag]
        else:
            directory += packed[tag].ljust(4, b"\0")
    mark = b"II*\0" if order == "<" else b"MM\0*"
    return mark + struct.pack(order + "I", 8) + directory + struct.pack(order + "I", 0) + beyond + data


def status_of(data: bytes) -> str:
    with pytest.raises(DecodeError) as caught:
        decode(data, 32)
    assert caught.value.reason
    assert "\n" not in caught.value.reason
    return caught.value.status
