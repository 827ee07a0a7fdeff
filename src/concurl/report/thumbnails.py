"""Small pictures as WebP data URIs, within a budget of bytes."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from concurl.progress import Stages, silent

# In bytes, before base64 adds a third: together 12.4 MB of a page that must stay below 15.
GALLERY_BUDGET = 2_800_000
SHEETS_BUDGET = 6_500_000
LARGEST = 160  # pixels: more than a gallery shows on any screen
_GALLERY_SIDES = (LARGEST, 128, 96, 72, 56, 40, 28)
_SHEET_SIDES = (96, 64, 48, 32, 16)  # whole WebP blocks, so that no picture bleeds into its neighbour
_QUALITY = 72
ACROSS = 16  # so 256 pictures per sheet: pointing at an image decodes one sheet, not the whole map
_SAMPLE = 256  # pictures that are encoded to estimate the size of all


@dataclass(frozen=True)
class Sheets:
    """Square pictures, ACROSS to a row and ACROSS rows to a sheet, in the order they were asked for."""

    uris: tuple[str, ...]
    side: int


def singles(pictures: Mapping[int, NDArray[np.uint8]]) -> dict[int, str]:
    """A data URI for each picture (3, H, W), as large as the budget allows and never larger than the picture itself."""
    sample = [pictures[int(row)] for row in _sample(np.array(list(pictures)))]
    side = _largest(
        _GALLERY_SIDES,
        max(min(picture.shape[1:]) for picture in sample),
        lambda s: float(np.mean([len(_webp(_picture(picture, s))) for picture in sample])) * len(pictures),
        GALLERY_BUDGET,
    )
    return {row: small(picture, side) for row, picture in pictures.items()}


def small(image: NDArray[np.uint8], side: int) -> str:
    """One image (3, H, W) as a data URI."""
    return _uri(_webp(_picture(image, side)))


def sheets(images: NDArray[np.uint8], rows: NDArray[np.int64], progress: Stages = silent) -> Sheets:
    """Sprite sheets of these rows for the map."""
    sample = _sample(rows)
    side = _largest(
        _SHEET_SIDES,
        min(images.shape[2:]),
        lambda s: len(_webp(_sheet(images, sample, s))) * len(rows) / len(sample),
        SHEETS_BUDGET,
    )
    per_sheet = ACROSS * ACROSS
    uris = []
    for start in range(0, len(rows), per_sheet):
        uris.append(_uri(_webp(_sheet(images, rows[start : start + per_sheet], side))))
        progress("page", min(start + per_sheet, len(rows)), len(rows))
    return Sheets(tuple(uris), side)


def _sample(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.take(rows, np.linspace(0, len(rows) - 1, min(len(rows), _SAMPLE)).astype(int))


def _largest(sides: tuple[int, ...], native: int, cost: Callable[[int], float], budget: int) -> int:
    wanted = sorted({min(side, native) for side in sides}, reverse=True)
    # 0.95, because the estimate is right to within a few per cent
    return next((side for side in wanted if cost(side) <= 0.95 * budget), wanted[-1])


def _picture(image: NDArray[np.uint8], side: int) -> Image.Image:
    """The whole image, its shorter edge `side` pixels long."""
    picture = Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0)))
    scale = side / min(picture.size)
    if scale >= 1:
        return picture
    width, height = (max(1, round(edge * scale)) for edge in picture.size)
    return picture.resize((width, height), Image.Resampling.LANCZOS)


def _sheet(images: NDArray[np.uint8], rows: NDArray[np.int64], side: int) -> Image.Image:
    sheet = Image.new("RGB", (ACROSS * side, math.ceil(len(rows) / ACROSS) * side))
    for place, row in enumerate(rows):
        picture = _picture(images[row], side)
        left, top = (picture.width - side) // 2, (picture.height - side) // 2
        line, column = divmod(place, ACROSS)
        sheet.paste(picture.crop((left, top, left + side, top + side)), (column * side, line * side))
    return sheet


def _webp(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "webp", quality=_QUALITY, method=4)
    return buffer.getvalue()


def _uri(data: bytes) -> str:
    return "data:image/webp;base64," + base64.b64encode(data).decode("ascii")
