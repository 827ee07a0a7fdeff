"""Bytes -> RGB uint8: modes, bit depth, alpha, EXIF orientation.

Whatever the file holds becomes what a viewer would show, with one exception: colour profiles are not applied.
Samples of 16 bits are scaled by the depth that they use, or by the one they are said to have (Pillow's own conversion
clips them to white, and what a camera of 12 bits leaves in 16 would be all but black). Signed, 32-bit and floating samples
have no known range: they are stretched from the image's least value to its greatest. Of several frames or pages the first
is taken. `oddities` says all this.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image
from PIL.ImageFile import ImageFile
from PIL.TiffImagePlugin import TiffImageFile

from concurl.data.pictures.content import DecodeError, image_format
from concurl.data.pictures.header import failure, open_image
from concurl.data.pictures.reading import OWN, Colour, Reading
from concurl.data.pictures.tiff import PHOTOMETRIC, SAMPLE_BITS, is_cut, mended

VERSION = 6  # raise it when the same file would give other pixels: packed copies are then made anew

_STRIP = 64  # rows that are converted at once: a whole picture in float64 would take twice its own memory

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_RANGELESS = ("I", "F")
_GAP = 2.0  # a cheaper reduction (JPEG's own, a box) may go first, down to this many times the wanted side
# What cameras, and 8-bit pictures in a larger file, fill of 16 bits. No 10: dim pictures of 12 bits would be four times
# as bright as their neighbours.
_DEPTHS = (8, 12, 14)
FIRST_PAGE = "first of several pages"  # the oddity of a stack: most of it is not looked at


@dataclass(frozen=True)
class Decoded:
    """An image, and what was met on the way."""

    pixels: NDArray[np.uint8]  # (3, size, size)
    width: int  # as the file says, before any rotation
    height: int
    mode: str
    format: str
    # gray, palette, alpha, cmyk, lab, ycbcr, stretched, animated, first of several pages, 12-bit (8, 14, 16), clipped,
    # exif-rotated
    oddities: tuple[str, ...]


def decode(data: bytes, size: int, *, reading: Reading = OWN) -> Decoded:
    """A file's image, its smaller edge resized to `size` and the centre cropped, and its description.

    Raises DecodeError, and nothing else, whatever the bytes are.
    """
    format = image_format(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns about odd metadata; the status says what matters
        image = open_image(data, format)
        try:
            return _decoded(image, format, size, reading)
        except Exception as error:  # decoders raise nearly everything
            raise failure(error, cut=is_cut(image, len(data))) from error


def decode_picture(image: Image.Image, size: int, reading: Reading = OWN) -> NDArray[np.uint8]:
    """A picture that Pillow has opened or made, decoded as its file would be."""
    try:
        if isinstance(image, TiffImageFile) and image.tile and image.fp is not None:  # its pixels are not loaded yet
            image = mended(image, image.fp)
        depth = _depth(image)
        return _shown(image, _scale(depth, _used(image, depth), reading), size, reading.background)
    except DecodeError:
        raise
    except Exception as error:
        raise failure(error, cut=False) from error


def resized(image: Image.Image, size: int) -> Image.Image:
    """Smaller edge to `size`, centre cropped: in one step, so that a long strip is never blown up first."""
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    box = (left, top, left + side, top + side)
    if side == size:
        return image.crop(box)
    # Pillow resizes RGBA with the colours weighted by alpha, so the background may come after it.
    return image.resize((size, size), Image.Resampling.BICUBIC, box=box, reducing_gap=_GAP)


def _decoded(image: ImageFile, format: str, size: int, reading: Reading) -> Decoded:
    width, height, mode, depth = *image.size, image.mode, _depth(image)
    oddities = _oddities(image)
    # Pillow turns TIFFs while it loads them. A PNG must not be asked before: it would load to answer, and fail unseen.
    turned = format == "TIFF" and _turn(image) is not None
    share = _GAP * size / min(width, height)
    image.draft(None, (math.ceil(width * share), math.ceil(height * share)))
    image.load()
    if depth > 8 and mode not in _RANGELESS:
        used = _used(image, depth)
        depth = _scale(depth, used, reading)
        oddities += (f"{used}-bit", *(["clipped"] if used > depth else []))
    if turned or _turn(image) is not None:
        oddities += ("exif-rotated",)
    return Decoded(_shown(image, depth, size, reading.background), width, height, mode, format, oddities)


def _shown(image: Image.Image, depth: int, size: int, background: Colour) -> NDArray[np.uint8]:
    flat, turn = _eight_bits(image, depth), _turn(image)
    return _over(resized(flat if turn is None else flat.transpose(turn), size), background)


def _oddities(image: ImageFile) -> tuple[str, ...]:
    mode = image.mode
    # A JPEG with a second picture in it (MPO) is a photograph with a preview: nothing moves.
    several = image.format != "MPO" and getattr(image, "is_animated", False)
    met = {
        "gray": mode in ("1", "L", "LA", "La", "I", "F") or mode.startswith("I;16"),
        "palette": mode in ("P", "PA"),
        "alpha": _has_alpha(image),
        "cmyk": mode == "CMYK",
        "lab": mode == "LAB",
        "ycbcr": mode == "YCbCr",
        "stretched": mode in _RANGELESS,
        "animated": several and image.format != "TIFF",
        FIRST_PAGE: several and image.format == "TIFF",
    }
    return tuple(name for name, is_met in met.items() if is_met)


def _has_alpha(image: Image.Image) -> bool:
    keyed = image.mode in ("1", "L", "P", "RGB") and "transparency" in image.info
    return keyed or image.mode in ("LA", "La", "PA", "RGBA", "RGBa")


def _depth(image: Image.Image) -> int:
    """Bits per sample as the file declares them."""
    tags = getattr(image, "tag_v2", None)
    if tags is not None:
        return int(np.max(tags.get(SAMPLE_BITS, 1)))
    tiles = getattr(image, "tile", ()) if image.format == "PNG" else ()  # none are left once the pixels are loaded
    return 16 if image.mode.startswith("I;16") or (tiles and "16" in str(tiles[0].args)) else 8


def _used(image: Image.Image, depth: int) -> int:
    """Bits per sample that are really used: a 16-bit file may hold a camera's 12 bits, and does not say so."""
    if depth != 16 or not (image.mode.startswith("I;16") or (image.mode == "RGB" and not _has_alpha(image))):
        return depth
    greatest = int(np.asarray(image).max())
    if image.mode == "RGB":  # Pillow keeps the upper byte only; where that is 0, nothing is left to scale
        greatest = greatest << 8 or 2**16 - 1
    return next((bits for bits in _DEPTHS if greatest < 2**bits), depth)


def _scale(depth: int, used: int, reading: Reading) -> int:
    """The bits per sample to scale by: the greatest number of so many bits becomes white."""
    return reading.depth if depth == 16 and reading.depth is not None else used


def _turn(image: Image.Image) -> Image.Transpose | None:
    try:
        return _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # broken metadata does not make the picture unreadable
        return None


def _eight_bits(image: Image.Image, depth: int) -> Image.Image:
    """One of L, RGB and RGBA, still at the file's size."""
    if image.mode.startswith("I;16"):
        # A table, as arithmetic on 64 million samples would take several copies of them.
        table = np.round(np.arange(2**16) * (255 / (2**depth - 1))).clip(0, 255).astype(np.uint8)
        return Image.fromarray((255 - table if _white_is_zero(image) else table)[np.asarray(image)])
    if image.mode in _RANGELESS:
        return _stretched(image)
    if _has_alpha(image):
        image = (image.convert("LA") if image.mode == "La" else image).convert("RGBA")
    if image.mode in ("RGB", "RGBA") and 8 < depth < 16:  # of such samples Pillow has kept the upper byte
        brighter = [min(255, round(upper * 255 / (2 ** (depth - 8) - 1))) for upper in range(256)]
        return image.point(brighter * 3 + list(range(256)) * (len(image.mode) - 3))
    if image.mode == "RGBA":
        return image
    return image.convert("L" if image.mode in ("1", "L") else "RGB")


def _stretched(image: Image.Image) -> Image.Image:
    values = np.asarray(image)
    strips = [slice(top, top + _STRIP) for top in range(0, len(values), _STRIP)]
    low, high = np.inf, -np.inf
    for rows in strips:
        finite = values[rows][np.isfinite(values[rows])]
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    if not low < high:
        return Image.new("L", image.size)
    flat = np.empty(values.shape, np.uint8)
    for rows in strips:
        strip = values[rows].astype(np.float64)  # in which whole numbers of 32 bits stay apart
        strip[~np.isfinite(strip)] = low
        flat[rows] = np.round((strip - low) * (255 / (high - low))).clip(0, 255)
    return Image.fromarray(255 - flat if _white_is_zero(image) else flat)


def _white_is_zero(image: Image.Image) -> bool:
    """Pillow inverts such TIFFs itself, except those of 16 and 32 bits."""
    return bool(getattr(image, "tag_v2", {}).get(PHOTOMETRIC) == 0)


def _over(image: Image.Image, background: Colour) -> NDArray[np.uint8]:
    if image.mode == "RGBA":
        canvas = Image.new("RGBA", image.size, (*background, 255))
        image = Image.alpha_composite(canvas, image)
    return np.ascontiguousarray(np.asarray(image.convert("RGB")).transpose(2, 0, 1))
