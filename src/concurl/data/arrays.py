"""Arrays, tensors and Pillow's images -> (N, 3, H, W) uint8, or one line on what is wrong with them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from concurl.data.imageset import ImageSet
from concurl.data.pictures.content import DecodeError
from concurl.data.pictures.decode import decode_picture, resized
from concurl.data.pictures.header import MIN_SIDE
from concurl.data.pictures.reading import OWN, Reading
from concurl.data.storage.sizes import choose_side
from concurl.errors import UserError, said_by

log = logging.getLogger("concurl")

_BLOCK = 2**24  # values that are converted at once: memory stays near that of the result
_DIVIDE = "divide by the most that they can reach: 4095 for 12 bits, 65535 for 16"
_SHAPES = "(N, H, W), (N, H, W, 1 or 3) or (N, 1 or 3, H, W)"


def is_array(source: Any) -> bool:
    """Is it a torch tensor, or a numpy array (and not one of paths or pictures)? Who has a tensor has imported torch."""
    if isinstance(source, np.ndarray):
        return source.ndim > 1 or source.dtype.kind not in "USO"
    return "torch" in sys.modules and isinstance(source, sys.modules["torch"].Tensor)


def read_array(source: Any, size: int | None = None) -> ImageSet:
    """Images from memory. uint8 in (N, 3, S, S) is taken as it is, without a copy.

    size: the wanted side. None: the images' shorter one; where that is above 128, one is chosen as for files.
    """
    images = _channels_first(as_numpy(source))
    height, width = images.shape[2:]
    side = size or min(height, width)
    if size is None and side > 128:
        side = choose_side([(width, height)])
    images = _bytes(images)
    if (height, width) != (side, side):
        images = _resized(images, side)
    elif images.shape[1] == 1:
        images = np.repeat(images, 3, axis=1)
    return ImageSet(images, [str(i) for i in range(len(images))])


def read_pictures(
    pictures: Sequence[Image.Image], size: int | None = None, largest: int | None = None, reading: Reading = OWN
) -> ImageSet:
    """Pillow's images, of any mode and size, as their files would be read."""
    for number, picture in enumerate(pictures):
        if min(picture.size) < MIN_SIDE:
            raise UserError(f"picture {number} has {picture.width} x {picture.height} pixels: {MIN_SIDE} are needed")
    side = size or choose_side([picture.size for picture in pictures], largest)
    images = np.empty((len(pictures), 3, side, side), np.uint8)
    for number, picture in enumerate(pictures):
        try:
            images[number] = decode_picture(picture, side, reading)
        except DecodeError as error:
            raise UserError(f"picture {number} of the list cannot be read: {error.reason}") from None
    return ImageSet(images, [str(i) for i in range(len(images))])


def as_numpy(source: Any) -> NDArray[Any]:
    """The array itself, or what a tensor holds."""
    if np.ma.is_masked(source):
        raise UserError("a masked array: give its hidden values some colour first, as X.filled(0) does")
    if isinstance(source, np.ndarray):
        return source
    try:
        tensor = source.detach().cpu()
        found: NDArray[Any] = (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
    except (RuntimeError, TypeError) as error:
        raise UserError(
            f"a tensor that numpy cannot take ({said_by(error)}); a dense one of uint8 or float32 is needed"
        ) from None
    return found


def _channels_first(array: NDArray[Any]) -> NDArray[Any]:
    """(N, 1 or 3, H, W), a view."""
    shape = array.shape
    if array.ndim == 3:
        images = array[:, None]
        if len(array) == 3 and min(shape[1:]) >= MIN_SIDE:  # not refused: the last of many batches may be three images
            log.warning("an array of shape %s is three gray images; one in colour needs X[None]", shape)
    elif array.ndim == 4 and shape[1] in (1, 3) and shape[3] not in (1, 3):
        images = array
    elif array.ndim == 4 and shape[3] in (1, 3) and shape[1] not in (1, 3):
        images = array.transpose(0, 3, 1, 2)
    else:
        hint = "; rows of pixels need X.reshape(N, H, W)" if array.ndim == 2 else ""
        raise UserError(f"an array of shape {shape}: {_SHAPES} is needed{hint}")
    if len(images) == 0:
        raise UserError(f"an array of shape {shape}: it holds no images")
    if min(images.shape[2:]) < MIN_SIDE:
        hint = "; a single image needs X[None]" if array.ndim == 3 and shape[2] in (1, 3, 4) else ""
        raise UserError(f"an array of shape {shape}: sides of at least {MIN_SIDE} pixels are needed{hint}")
    return images


def _bytes(images: NDArray[Any]) -> NDArray[np.uint8]:
    if images.dtype == np.uint8:
        return images
    if images.dtype != np.bool_ and images.dtype.kind != "f":
        remedy = "take real numbers"
        if images.dtype.kind in "iu":
            remedy = _DIVIDE if images.max() > 255 else "try X.astype(np.uint8)"
            remedy = "shift and scale its negative numbers first" if images.min() < 0 else remedy
        raise UserError(f"an array of {images.dtype}: uint8, or floats in [0, 1], are needed; {remedy}")
    result = np.empty(images.shape, np.uint8)
    step = max(1, _BLOCK // images[0].size)
    for start in range(0, len(images), step):
        block = images[start : start + step].astype(np.float32)
        _check_range(block, start)
        result[start : start + step] = np.round(block * 255)
    return result


def _check_range(block: NDArray[np.float32], start: int) -> None:
    low, high = float(block.min()), float(block.max())
    if low >= 0 and high <= 1:
        return
    finite = np.isfinite(block)
    if not finite.all():
        image = start + int(np.argmin(finite.reshape(len(block), -1).all(axis=1)))
        raise UserError(f"image {image} of the array holds NaN or infinity: leave it out, or use np.nan_to_num")
    remedy = _DIVIDE if high > 255 else f"divide by {255 if high > 16 else high:g}"
    if low < 0:
        remedy = "subtract the least value, then divide"
    raise UserError(f"an array of floats from {low:g} to {high:g}: values in [0, 1] are needed; {remedy}")


def _resized(images: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    result = np.empty((len(images), 3, side, side), np.uint8)
    for target, image in zip(result, images, strict=True):
        # (1 or 3, H, W) -> (H, W) or (H, W, 3)
        picture = Image.fromarray(np.ascontiguousarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)))
        target[:] = np.asarray(resized(picture, side).convert("RGB")).transpose(2, 0, 1)
    return result
