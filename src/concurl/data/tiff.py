"""TIFFs as microscopes write them: channels that Pillow has no mode for, and planes that it reads wrongly."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
from PIL import Image, TiffImagePlugin
from PIL.ImageFile import ImageFile

from concurl.data.content import DecodeError

_SAMPLE_BITS, _PHOTOMETRIC, _SAMPLES, _PLANAR = 258, 262, 277, 284  # tags
_GRAY = (0, 1)  # photometric: white is 0, black is 0


def check_channels(tags: Mapping[int, Any]) -> None:
    """Refuse a gray picture of more than one channel, or any of more than four: Pillow takes none of them, or the first."""
    channels = tags.get(_SAMPLES)
    if isinstance(channels, int) and channels > (1 if tags.get(_PHOTOMETRIC, 0) in _GRAY else 4):
        raise DecodeError("unreadable", f"{channels} channels are not read: save one as gray, or three as RGB")


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


def open_tiff(stream: IO[bytes]) -> ImageFile:
    """As Pillow opens it, but for pictures with a plane for each channel."""
    image = Image.open(stream, formats=["TIFF"])
    tags = getattr(image, "tag_v2", {})
    if tags.get(_PLANAR) != 2:
        return image
    if len(image.getbands()) == 1:
        check_channels(tags)
    if not np.max(tags.get(_SAMPLE_BITS, 1)) > 8:
        return image
    # By itself Pillow takes each byte of such planes for a sample: half of the picture, mixed with noise. libtiff does not.
    stream.seek(0)
    usual, TiffImagePlugin.READ_LIBTIFF = TiffImagePlugin.READ_LIBTIFF, True
    try:
        return Image.open(stream, formats=["TIFF"])
    finally:
        TiffImagePlugin.READ_LIBTIFF = usual
