"""Random views: the dice give every operation its parameters, and the operations follow in a fixed order."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from concurl.views import augment
from concurl.views.presets import ViewSpec

# Which column of the dice decides what. Columns are fixed, so that switching an operation off does not change the numbers
# of the others; a new operation gets columns at the end.
TRIES = 10
AREA, RATIO = slice(0, TRIES), slice(TRIES, 2 * TRIES)
TOP, LEFT, FLIP, VERTICAL_FLIP, ANGLE, QUARTER, SCALE, SHEAR, SHIFT_X, SHIFT_Y = range(20, 30)
JITTER, BRIGHTNESS, CONTRAST, SATURATION, HUE, GRAY, BLUR, SIGMA, SOLARISE = range(30, 39)
COLUMNS = 39

# Brightness, contrast and saturation, by the name of their formulas (`colours`).
FORMULAS = {
    "torchvision": (augment.brightness, augment.contrast, augment.saturation),
    "kornia": (augment.added_brightness, augment.contrast_from_black, augment.hsv_saturation),
}


class Box(NamedTuple):
    """Where the crops are, in whole pixels: four tensors (B,)."""

    top: Tensor
    rows: Tensor
    left: Tensor
    columns: Tensor


def random_view(x: Tensor, spec: ViewSpec, u: Tensor, second: Tensor) -> Tensor:
    """A view of each image x (B, H, 3, W) by the dice u (B, COLUMNS) -> (B, 3 or 2, S, S).

    `second` (B,) says which rows have the probabilities of the second view: both views are made in one pass.
    """

    def chosen(column: int, probabilities: tuple[float, float]) -> Tensor:
        return u[:, column] < torch.where(second, probabilities[1], probabilities[0])

    x = _move(x, spec, u)
    if spec.jitter:
        x = _jitter(x, spec, u)
    if spec.gray:
        x = augment.drop_colour(x, u[:, GRAY] < spec.gray)
    if any(spec.blur):
        sigma = _between(u[:, SIGMA], *spec.blur_sigma)
        sigma = torch.where(chosen(BLUR, spec.blur), sigma, 1e-3)  # so small that the matrix is the identity
        matrix = augment.blur_matrix(sigma, spec.blur_kernel, spec.size)
        x = augment.resample(x, matrix, matrix)
    if any(spec.solarise):
        x = augment.solarise(x, chosen(SOLARISE, spec.solarise))
    x = augment.normalise(x)
    return augment.sobel(x) if spec.sobel else x


def _move(x: Tensor, spec: ViewSpec, u: Tensor) -> Tensor:
    """Crop, flips and the affine map in one resampling: (B, H, 3, W) -> (B, S, 3, S)."""
    height, width = x.shape[1], x.shape[3]
    if not spec.moves and height == width == spec.size:
        return x
    box = crop_box(spec, u, height, width)
    flip, vertical_flip = u[:, FLIP] < spec.flip, u[:, VERTICAL_FLIP] < spec.vertical_flip
    if spec.warps:
        theta = affine_map(spec, u, box, flip, vertical_flip, height, width)
        return augment.warp(x, theta, spec.size, spec.padding)
    rows = augment.resampling_matrix(box.top, box.rows, height, spec.size, vertical_flip)
    columns = augment.resampling_matrix(box.left, box.columns, width, spec.size, flip)
    return augment.resample(x, rows, columns)


def crop_box(spec: ViewSpec, u: Tensor, height: int, width: int) -> Box:
    """torchvision's RandomResizedCrop.

    torchvision draws area and ratio until the crop fits into the image, at most ten times; here all ten are drawn at once,
    and the first that fits is taken.
    NOTE: if none fits (rare, unless an image is longer than about 2 to 1) the last one is cut to the image and placed at
    random, where torchvision takes the centre.
    """
    if spec.crop_min == 1:
        side = min(height, width)
        sides = [(height - side) // 2, side, (width - side) // 2, side]
        return Box(*(torch.full_like(u[:, 0], value) for value in sides))
    area = _between(u[:, AREA], spec.crop_min, 1.0) * (height * width)  # (B, TRIES)
    low, high = spec.crop_ratio
    ratio = torch.exp(_between(u[:, RATIO], math.log(low), math.log(high)))
    columns = torch.sqrt(area * ratio).round().clamp(min=1)
    rows = torch.sqrt(area / ratio).round().clamp(min=1)
    fits = (columns <= width) & (rows <= height)
    attempt = torch.arange(TRIES, device=u.device)
    first = torch.where(fits, attempt, TRIES - 1).amin(1, keepdim=True)
    columns = columns.gather(1, first).squeeze(1).clamp(max=width)
    rows = rows.gather(1, first).squeeze(1).clamp(max=height)
    top = torch.floor(u[:, TOP] * (height - rows + 1))
    left = torch.floor(u[:, LEFT] * (width - columns + 1))
    return Box(top, rows, left, columns)


def affine_map(
    spec: ViewSpec, u: Tensor, box: Box, flip: Tensor, vertical_flip: Tensor, height: int, width: int
) -> Tensor:
    """The map (B, 2, 3) from the view to the image, both from -1 to 1: flip, scale, shear, turn, shift, crop.

    A turned view shows the image beyond its crop, and beyond the image what `spec.padding` says.
    """
    angle = _between(u[:, ANGLE], -spec.rotation, spec.rotation)
    quarter = math.pi / 2
    angle = torch.where(u[:, QUARTER] < spec.quarter_turns, torch.round(angle / quarter) * quarter, angle)
    cos, sin = torch.cos(angle), torch.sin(angle)
    shear = _between(u[:, SHEAR], -spec.shear, spec.shear)
    scale = _between(u[:, SCALE], *spec.scale)
    across, down = torch.where(flip, -1.0, 1.0) / scale, torch.where(vertical_flip, -1.0, 1.0) / scale
    x_shift = 2 * _between(u[:, SHIFT_X], -spec.shift, spec.shift)  # a side is 2 long
    y_shift = 2 * _between(u[:, SHIFT_Y], -spec.shift, spec.shift)
    w, h = box.columns / width, box.rows / height
    entries = [
        w * cos * across,
        w * (cos * shear - sin) * down,
        w * (1 + x_shift) + 2 * box.left / width - 1,
        h * sin * across,
        h * (sin * shear + cos) * down,
        h * (1 + y_shift) + 2 * box.top / height - 1,
    ]
    return torch.stack(entries, dim=1).view(-1, 2, 3)


def _jitter(x: Tensor, spec: ViewSpec, u: Tensor) -> Tensor:
    """Brightness, contrast, saturation, hue.

    NOTE: always in this order, where torchvision and kornia draw one per call. Each of the 24 orders would need a compiled
    kernel of its own.
    """
    chosen = u[:, JITTER] < spec.jitter

    def factor(column: int, strength: float) -> Tensor:
        return torch.where(chosen, _between(u[:, column], 1 - strength, 1 + strength), 1.0)  # 1 does nothing

    brightness, contrast, saturation = FORMULAS[spec.colours]
    if spec.brightness:
        x = brightness(x, factor(BRIGHTNESS, spec.brightness))
    if spec.contrast:
        x = contrast(x, factor(CONTRAST, spec.contrast))
    if spec.saturation:
        x = saturation(x, factor(SATURATION, spec.saturation))
    if spec.hue:
        x = augment.hue(x, torch.where(chosen, _between(u[:, HUE], -spec.hue, spec.hue), 0.0))
    return x


def _between(u: Tensor, low: float, high: float) -> Tensor:
    return low + u * (high - low)
