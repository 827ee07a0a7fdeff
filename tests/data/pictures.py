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

from concurl.data.decode import DecodeError, decode

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
) -> bytes:
    """A one-channel TIFF around sample bytes; its directory comes first."""
    tags: Sequence[tuple[int, int, int]] = (
        (256, 4, width),
        (257, 4, height),
        (258, 3, bits),
        (259, 3, compression),
        (262, 3, photometric),
        (273, 4, 8 + 2 + 10 * 12 + 4),
        (277, 3, 1),
        (278, 4, height),
        (279, 4, len(data)),
        (339, 3, sample_format),
    )
    directory = struct.pack(order + "H", len(tags))
    for tag, kind, value in tags:
        packed = struct.pack(order + "HH", value, 0) if kind == 3 else struct.pack(order + "I", value)
        directory += struct.pack(order + "HHI", tag, kind, 1) + packed
    mark = b"II*\0" if order == "<" else b"MM\0*"
    return mark + struct.pack(order + "I", 8) + directory + struct.pack(order + "I", 0) + data


def status_of(data: bytes) -> str:
    with pytest.raises(DecodeError) as caught:
        decode(data, 32)
    assert caught.value.reason
    assert "\n" not in caught.value.reason
    return caught.value.status
