"""Image files of every format and mode that Pillow writes, with a few bytes changed, lost or added."""

from __future__ import annotations

import random

import numpy as np
from pictures import encoded, scene
from PIL import Image

FORMATS = {
    "jpeg": ("JPEG", {"quality": 90}),
    "progressive": ("JPEG", {"quality": 90, "progressive": True}),
    "png": ("PNG", {}),
    "webp": ("WEBP", {}),
    "webp-lossless": ("WEBP", {"lossless": True}),
    "bmp": ("BMP", {}),
    "tiff": ("TIFF", {}),
    "tiff-lzw": ("TIFF", {"compression": "tiff_lzw"}),
    "tiff-jpeg": ("TIFF", {"compression": "jpeg"}),
    "gif": ("GIF", {}),
    "avif": ("AVIF", {}),
    "heic": ("HEIF", {}),
}
MODES = {  # all that Pillow writes
    "JPEG": "L RGB CMYK YCbCr",
    "PNG": "1 L LA P RGB RGBA I;16",
    "WEBP": "RGB RGBA",
    "BMP": "1 L P RGB RGBA",
    "TIFF": "1 L LA P RGB RGBA CMYK YCbCr LAB I;16 I F",
    "GIF": "1 L P RGB RGBA",
    "AVIF": "L RGB RGBA",
    "HEIF": "L RGB RGBA",
}


def mutated(dice: random.Random) -> bytes:
    format, options = FORMATS[dice.choice(list(FORMATS))]
    mode = dice.choice(MODES[format].split())
    if options.get("compression") == "jpeg" and mode not in ("L", "RGB", "CMYK", "YCbCr"):
        mode = "RGB"
    image = Image.fromarray(scene(40, 56, seed=dice.randrange(5)))
    if mode == "LAB":
        image = Image.merge("LAB", image.split())
    elif mode == "I;16":
        image = Image.fromarray(np.asarray(image.convert("L"), np.uint16) * 257)
    else:
        image = image.convert(mode)
    data = bytearray(encoded(image, format, **options))
    for _ in range(dice.choice([1, 1, 2, 8])):
        where = dice.randrange(2, min(len(data), dice.choice([64, 700, 10**9])))
        what = dice.randrange(3)
        if what == 0:
            data[where] = dice.randrange(256)
        elif what == 1:
            del data[where : where + dice.randrange(1, 9)]
        else:
            data[where:where] = dice.randbytes(dice.randrange(1, 9))
    return bytes(data)
