"""Which random changes suit which kind of images: the options as a `ViewSpec`."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

from concurl.config import Config


@dataclass(frozen=True)
class ViewSpec:
    """Every parameter of a random view. By default a view is the image's central square, resized to `size`.

    Pairs of probabilities are for the first and the second view (and so on in turn, if there are more).
    """

    size: int
    """Side of the view in pixels."""

    # ---- geometry -----------------------------------------------------------------------------------------
    crop_min: float = 1.0
    """Smallest share of the area that a crop keeps; the share is uniform up to 1. 1: no crop."""
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Width over height of the crop, log-uniform."""
    flip: float = 0.0
    """Probability of exchanging left and right."""
    vertical_flip: float = 0.0
    """Probability of exchanging top and bottom."""
    rotation: float = 0.0
    """Largest angle in radians, either way."""
    quarter_turns: float = 0.0
    """Probability of rounding the angle to a quarter turn, which needs no pixels from beyond the border."""
    scale: tuple[float, float] = (1.0, 1.0)
    """Magnification of the content, uniform."""
    shear: float = 0.0
    """Largest slant, either way, as columns per row."""
    shift: float = 0.0
    """Largest shift along each axis, either way, as a share of the side."""
    padding: Literal["border", "reflection"] = "border"
    """What a rotated or shifted view sees beyond the image."""

    # ---- colour -------------------------------------------------------------------------------------------
    colours: Literal["torchvision", "kornia"] = "torchvision"
    """Whose formulas brightness, contrast and saturation follow."""
    jitter: float = 0.0
    """Probability of the four colour changes that follow, together."""
    brightness: float = 0.0
    """Factor from 1 - this to 1 + this, uniform; likewise contrast and saturation."""
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0
    """Largest turn of the hue circle, either way; 0.5 is the complementary colour."""
    gray: float = 0.0
    """Probability of dropping the colours."""

    # ---- after the colours --------------------------------------------------------------------------------
    blur: tuple[float, float] = (0.0, 0.0)
    """Probabilities of a Gaussian blur."""
    blur_kernel: int = 23
    """Its kernel in pixels, odd."""
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    """Its standard deviation in pixels, uniform."""
    solarise: tuple[float, float] = (0.0, 0.0)
    """Probabilities of inverting the bright half of the values."""
    sobel: bool = False
    """Replace the colours by the two Sobel gradients."""

    @property
    def warps(self) -> bool:
        """Does the geometry need more than rows and columns?"""
        return bool(self.rotation or self.shear or self.shift) or self.scale != (1.0, 1.0)

    @property
    def moves(self) -> bool:
        """Does the geometry change at all from step to step?"""
        return self.warps or self.crop_min < 1 or bool(self.flip or self.vertical_flip)


SMALL = 64  # pixels: in images up to this side, blur would remove what tells them apart
USUAL_JITTER = 0.8  # how often BYOL changes the colours of a view
ALWAYS_AND_EVERY_OTHER_TIME = (1.0, 0.5)  # how the paper blurs its two views


def view_spec(config: Config) -> ViewSpec:
    """The views of `config.preset`, with the config's own crop, brightness, blur, solarise and sobel."""
    if config.image_size is None or config.preset is None:
        raise ValueError(
            f"image_size={config.image_size}, preset={config.preset}: settle the Config before views are made"
        )
    spec = _PRESETS[config.preset](config.view_size)
    if config.crop_min is not None:
        spec = dataclasses.replace(spec, crop_min=config.crop_min)
    if config.brightness is not None:
        often = spec.jitter or USUAL_JITTER  # a share asks for it, even if the preset has none
        spec = dataclasses.replace(spec, jitter=often, brightness=config.brightness, contrast=config.brightness)
    if config.blur_kernel == 0:
        spec = dataclasses.replace(spec, blur=(0.0, 0.0))
    elif config.blur_kernel is not None:  # a kernel asks for blur, even if the preset has none
        spec = dataclasses.replace(spec, blur=ALWAYS_AND_EVERY_OTHER_TIME, blur_kernel=config.blur_kernel)
    # BYOL solarises the second view only
    return dataclasses.replace(spec, colours=config.colours, sobel=config.sobel, solarise=(0.0, config.solarise))


def _natural(size: int) -> ViewSpec:
    """The paper's. NOTE: it does not give the strengths of the jitter; these are BYOL's."""
    return ViewSpec(
        size,
        crop_min=0.08,
        flip=0.5,
        jitter=USUAL_JITTER,
        brightness=0.4,
        contrast=0.4,
        saturation=0.2,
        hue=0.1,
        gray=0.2,
        blur=ALWAYS_AND_EVERY_OTHER_TIME,
    )


def _small(size: int) -> ViewSpec:
    """For about 32 px, where blur would leave nothing to see. The stronger saturation is usual for CIFAR."""
    return dataclasses.replace(_natural(size), saturation=0.4, blur=(0.0, 0.0))


def _gray(size: int) -> ViewSpec:
    """For digits, letters and sketches, which may change their meaning when mirrored or cropped.

    Small turns alone are too easy to see through: without the brightness, garments were told apart no better than by pixels.
    """
    return ViewSpec(
        size,
        rotation=0.3,
        scale=(0.75, 1.15),
        shear=0.2,
        shift=0.1,
        jitter=USUAL_JITTER,
        brightness=0.4,
        contrast=0.4,
    )


def _free(size: int) -> ViewSpec:
    """For images without up and down, from above or through a microscope. Half of the turns need no interpolation.

    The magnification is always the same there, so that size tells kinds apart: crops enlarge less than natural's.
    """
    spec = _natural(size) if size > SMALL else dataclasses.replace(_natural(size), blur=(0.0, 0.0))
    turned = dataclasses.replace(spec, vertical_flip=0.5, rotation=math.pi, quarter_turns=0.5, padding="reflection")
    return dataclasses.replace(turned, crop_min=0.4)


_PRESETS = {"natural": _natural, "small": _small, "gray": _gray, "free": _free, "none": ViewSpec}
