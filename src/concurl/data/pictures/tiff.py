"""TIFFs as microscopes write them: channels that Pillow has no mode for, and planes that it reads wrongly."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
from PIL import Image, TiffImagePlugin
from PIL.ImageFile import ImageFile

from concurl.data.pictures.content import DecodeError

SAMPLE_BITS, PHOTOMETRIC, _SAMPLES, _PLANAR, _SAMPLE_FORMAT = 258, 262, 277, 284, 339  # tags
_STRIPS, _STRIP_BYTES, _TILES, _TILE_BYTES = 273, 279, 324, 325
_FORMATS = {1: "unsigned", 2: "signed", 3: "floating"}
_GRAY = (0, 1)  # photometric: white is 0, black is 0
# libtiff gives samples in the machine's byte order, but for these modes Pillow expects the file's.
_NATIVE = {"I;16BS": "I;16NS", "I;32BS": "I;32NS", "F;32BF": "F;32NF"}


def check_channels(tags: Mapping[int, Any]) -> None:
    """Refuse a gray picture of several channels, or any of more than four: Pillow refuses them too, or takes the first."""
    channels = tags.get(_SAMPLES)
    if isinstance(channels, int) and channels > (1 if tags.get(PHOTOMETRIC, 0) in _GRAY else 4):
        raise DecodeError("unreadable", f"{channels} channels are not read: save one as gray, or three as RGB")


def check_samples(tags: Mapping[int, Any]) -> None:
    """Refuse, and name, samples that Pillow has no mode for, such as 64-bit floats. A directory that names none passes."""
    bits, format = (np.ravel(tags.get(tag, fallback)) for tag, fallback in ((SAMPLE_BITS, ()), (_SAMPLE_FORMAT, 1)))
    if len(bits) and (kind := _FORMATS.get(format[0])):
        raise DecodeError(
            "unreadable", f"{bits[0]}-bit {kind} samples of this kind are not read: save 8 or 16 bits, gray or RGB"
        )


def first_directory(data: bytes) -> Mapping[int, Any]:
    """The tags of a file that Pillow does not open; none where they make no sense."""
    stream = io.BytesIO(data)
    try:
        directory = TiffImagePlugin.ImageFileDirectory_v2(data[: 16 if data[2] == 43 else 8])  # 43: a BigTIFF
        stream.seek(directory.next)
        directory.load(stream)
        return dict(directory)
    except Exception:  # as when Pillow opens it
        return {}


def mended(image: ImageFile, stream: IO[bytes]) -> ImageFile:
    """A TIFF that Pillow has opened from the stream and not loaded yet; puts right two kinds that it would read as noise."""
    tags = getattr(image, "tag_v2", {})
    if tags.get(_PLANAR) == 2:  # a plane for each channel
        if len(image.getbands()) == 1:
            check_channels(tags)
        if np.max(tags.get(SAMPLE_BITS, 1)) > 8:
            image = _open_by_libtiff(stream, image.tell())  # by itself Pillow takes each byte for a sample
    image.tile = [
        tile._replace(args=(_NATIVE.get(tile.args[0], tile.args[0]), *tile.args[1:]))
        if tile.codec_name == "libtiff" and isinstance(tile.args, tuple)
        else tile
        for tile in image.tile
    ]
    return image


def is_cut(image: ImageFile, length: int) -> bool:
    """Is the file too short for what a TIFF's directory lists? libtiff does not say."""
    tags = getattr(image, "tag_v2", {})
    try:
        for starts, counts in ((_STRIPS, _STRIP_BYTES), (_TILES, _TILE_BYTES)):
            if starts in tags and counts in tags:
                return bool(np.max(np.add(tags[starts], tags[counts])) > length)
    except (TypeError, ValueError, OverflowError):  # a broken directory
        pass
    return False


def _open_by_libtiff(stream: IO[bytes], page: int) -> ImageFile:
    stream.seek(0)
    usual, TiffImagePlugin.READ_LIBTIFF = TiffImagePlugin.READ_LIBTIFF, True
    try:
        image = Image.open(stream, formats=["TIFF"])
        image.seek(page)
        return image
    finally:
        TiffImagePlugin.READ_LIBTIFF = usual
