"""A folder as people have them: good pictures, odd ones and broken ones, through the whole of `concurl fit`."""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pictures import encoded, png, png_bomb, scene, tiff
from PIL import Image

from concurl.cli import main
from concurl.config import Config
from concurl.data.sources import read_source
from concurl.runs.run import largest_size

SIDE = 32  # of the scenes and of the run: what is kept is then what was drawn, pixel for pixel
Scene = NDArray[np.uint8]  # (SIDE, SIDE, 3)
TURNED = Image.Exif()
TURNED[274] = 6  # the picture lies on its side, and a viewer who heeds EXIF shows it upright


def unturned(upright: Scene) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(np.rot90(upright)))


def gray(s: Scene) -> Scene:
    return s[..., 0]


def halved(data: bytes) -> bytes:
    return data[: len(data) // 2]


def several(s: Scene, format: str) -> bytes:
    return encoded(Image.fromarray(s), format, save_all=True, append_images=[Image.fromarray(255 - s)])


# name: how a scene becomes the file. The name's suffix is the file's; some lie.
EXACT: dict[str, Callable[[Scene], bytes]] = {  # lossless: what must come out is known
    "plain.bmp": lambda s: encoded(Image.fromarray(s), "BMP"),
    "lying.jpg": lambda s: encoded(Image.fromarray(s), "PNG"),
    "no suffix": lambda s: encoded(Image.fromarray(s), "PNG"),
    "deep-gray.png": lambda s: png(gray(s).astype(np.uint16) * 257, 16, 0),
    "exif.png": lambda s: encoded(unturned(s), "PNG", exif=TURNED),
    "clear.png": lambda s: encoded(Image.fromarray(np.dstack([s, 0 * gray(s)])), "PNG"),  # nothing but background
}

OK: dict[str, Callable[[Scene], bytes]] = {
    "animated.gif": lambda s: several(s, "GIF"),
    "pages.tif": lambda s: several(s, "TIFF"),
    "palette.png": lambda s: encoded(Image.fromarray(s).quantize(32), "PNG"),
    "alpha.webp": lambda s: encoded(Image.fromarray(np.dstack([s, gray(s)])), "WEBP"),
    "cmyk.jpg": lambda s: encoded(Image.fromarray(s).convert("CMYK"), "JPEG"),
    "floats.tif": lambda s: encoded(Image.fromarray(gray(s).astype(np.float32) / 7), "TIFF"),
    "exif.jpg": lambda s: encoded(unturned(s), "JPEG", exif=TURNED),
    "phone.heic": lambda s: encoded(Image.fromarray(s), "HEIF"),
    "shop.avif": lambda s: encoded(Image.fromarray(s), "AVIF"),
    "wide.jpg": lambda s: encoded(Image.fromarray(np.tile(s, (1, 9, 1))), "JPEG"),
}

BAD: dict[str, tuple[str, Callable[[Scene], bytes]]] = {
    "empty.jpg": ("empty", lambda s: b""),
    "note.txt": ("not an image", lambda s: b"milk, bread, " + s[0, 0].tobytes().hex().encode()),
    "film.mp4": ("not an image", lambda s: b"\0\0\0\x18ftypisom" + s.tobytes()),
    "cut.jpg": ("truncated", lambda s: halved(encoded(Image.fromarray(s), "JPEG"))),
    "cut.tif": ("truncated", lambda s: halved(tiff(gray(s).tobytes(), SIDE, SIDE, 8))),
    "damaged.png": ("unreadable", lambda s: encoded(Image.fromarray(s), "PNG")[:40] + s.tobytes()),
    "dot.png": ("too small", lambda s: encoded(Image.fromarray(s[:3, :3]), "PNG")),
}


def fill(folder: Path, good: list[bytes], odd: int) -> tuple[dict[str, str], dict[str, Scene]]:
    """Write the good files and `odd` others, every kind in turn: each file's status, and the pixels of some."""
    statuses: dict[str, str] = {}
    pixels: dict[str, Scene] = {}

    def put(name: str, data: bytes, status: str) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        statuses[name] = status

    for i, data in enumerate(good):
        put(f"good/{i:04d}.jpg", data, "ok")
    kinds = [*EXACT, *OK, *BAD, "bomb", "copy", "link", "dangling", "pipe"]
    assert odd >= len(kinds)
    for i in range(odd):
        kind, seed = kinds[i % len(kinds)], 10_000 + i
        name, drawn = f"odd/{i:03d} {kind}", scene(SIDE, SIDE, seed)
        if kind in EXACT:
            put(name, EXACT[kind](drawn), "ok")
            pixels[name] = np.repeat(drawn[..., :1], 3, axis=2) if kind == "deep-gray.png" else drawn
            if kind == "clear.png":
                pixels[name] = np.full_like(drawn, 255)
        elif kind in OK:
            put(name, OK[kind](drawn), "ok")
        elif kind in BAD:
            put(name, BAD[kind][1](drawn), BAD[kind][0])
        elif kind == "bomb":
            put(f"{name}.png", png_bomb(8_001 + i), "too large")
        elif kind == "copy":
            put(f"{name}.jpeg", good[i % len(good)], "duplicate")
        elif kind == "link":
            (folder / f"{name}.jpg").symlink_to(folder / f"good/{i % len(good):04d}.jpg")
            statuses[f"{name}.jpg"] = "duplicate"
        elif kind == "dangling":
            (folder / f"{name}.jpg").symlink_to("nowhere.jpg")
            statuses[f"{name}.jpg"] = "unreadable"
        else:
            os.mkfifo(folder / f"{name}.jpg")
            statuses[f"{name}.jpg"] = "unreadable"
    return statuses, pixels


def table(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def check(folder: Path, run: Path, statuses: dict[str, str], pixels: dict[str, Scene]) -> None:
    """Every file has its one row, with the right status; the numbers add up; no pixel is off."""
    used, skipped = table(run / "assignments.csv"), table(run / "skipped.csv")
    rows = Counter(row["path"] for row in used + skipped)
    assert set(rows) == set(statuses)
    assert set(rows.values()) == {1}
    found = {row["path"]: "ok" for row in used} | {row["path"]: row["status"] for row in skipped}
    assert {p: (found[p], statuses[p]) for p in found if found[p] != statuses[p]} == {}
    assert all(row["reason"] for row in skipped)
    summary = json.loads((run / "summary.json").read_text())
    assert sum(summary["sizes"]) == summary["n_images"] == len(used) == len(np.load(run / "embeddings.npy"))
    images = read_source(folder, SIDE, largest=largest_size(Config()))  # the packed copy that fit worked with
    assert images.reused
    assert images.summary.statuses == Counter(statuses.values())
    place = {name: i for i, name in enumerate(images.names)}
    assert list(place) == [row["path"] for row in used]
    wrong = [name for name, s in pixels.items() if (images.images[place[name]] != s.transpose(2, 0, 1)).any()]
    assert not wrong


def fitted_and_checked(tmp_path: Path, good: int, odd: int, *options: str) -> Any:
    folder, run = tmp_path / "photos", tmp_path / "run"
    scenes = [encoded(Image.fromarray(scene(40, 48, i)), "JPEG") for i in range(good)]
    statuses, pixels = fill(folder, scenes, odd)
    assert main(["fit", str(folder), "-k", "4", "-o", str(run), "--image-size", str(SIDE), "--quiet", *options]) == 0
    check(folder, run, statuses, pixels)
    return run


QUICK = "--epochs 1 --encoder tiny --batch-size 16 --n-transforms 5 --queue-size 0 --projector-hidden 32"


def test_every_file_gets_one_row(tmp_path: Path) -> None:
    run = fitted_and_checked(tmp_path, 30, 70, *QUICK.split(), "--no-report")
    assert len(table(run / "assignments.csv")) + len(table(run / "skipped.csv")) == 100


@pytest.mark.slow
def test_1_000_good_and_200_others(tmp_path: Path) -> None:
    run = fitted_and_checked(tmp_path, 1_000, 200, *QUICK.split())
    page = (run / "report.html").read_text()
    for status in ("truncated", "empty", "too small", "too large", "not an image", "duplicate", "unreadable"):
        assert f'<td role="cell">{status}</td>' in page
