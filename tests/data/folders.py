"""What a folder may hold: a file of each kind, and names that are hard to take."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from pictures import encoded, png, png_bomb, scene
from PIL import Image

HOSTILE = [
    b"new\nline.png",
    b'quote".png',
    b"apos'trophe.png",
    b"comma,semi;tab\t.png",
    b"=cmd|' -C calc'!A0.png",
    b"<script>alert(1)</script>.png".replace(b"/", b"_"),
    b"invalid\xff\xfeutf8.png",
    b"carriage\rreturn.png",
    "rechts\u202elinks.png".encode(),
    b"back\\slash.png",
    b" space .png",
    b"%s{}$HOME`id`.png",
    b"#hash.png",
    b"-rf.png",
]

PHOTO = Image.fromarray(scene())


def zoo(root: Path) -> dict[str, str]:
    """A folder with one file of each kind; and the status that each should get."""
    exif = Image.Exif()
    exif[274] = 6
    jpeg = encoded(PHOTO, "JPEG")
    kinds = {
        "a.jpg": (jpeg, "ok"),
        "animated.gif": (
            encoded(PHOTO, "GIF", save_all=True, append_images=[Image.new("RGB", (64, 64))]),
            "ok",
        ),
        "bomb.png": (png_bomb(9000), "too large"),
        "cmyk.jpg": (encoded(PHOTO.convert("CMYK"), "JPEG"), "ok"),
        "copy of a.jpg": (jpeg, "duplicate"),
        "damaged.png": (encoded(PHOTO, "PNG")[:40] + bytes(4000), "unreadable"),
        "deep.png": (png(np.arange(4096).reshape(64, 64) * 16, 16, 0), "ok"),
        "empty.jpg": (b"", "empty"),
        "rotated.webp": (encoded(PHOTO, "WEBP", exif=exif), "ok"),
        "strip.png": (encoded(Image.new("L", (1, 60_000)), "PNG"), "too small"),
        "text.jpg": (b"not a picture", "not an image"),
        "truncated.jpg": (jpeg[: len(jpeg) // 2], "truncated"),
        "truncated copy.jpg": (jpeg[: len(jpeg) // 2], "truncated"),
    }
    for name, (data, _) in kinds.items():
        (root / name).write_bytes(data)
    (root / "dangling.png").symlink_to("nowhere")
    os.mkfifo(root / "pipe.jpg")
    statuses = {name: status for name, (_, status) in kinds.items()}
    return statuses | {"dangling.png": "unreadable", "pipe.jpg": "unreadable"}
