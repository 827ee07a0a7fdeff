"""The presets say what the paper and the options say."""

import dataclasses
import math

import pytest

from concurl.config import Config
from concurl.views.presets import ViewSpec, view_specs


def specs(preset="natural", image_size=96, **options):
    return view_specs(Config(preset=preset, image_size=image_size, **options))


def test_natural_is_the_papers():
    one, two = specs()
    assert one == ViewSpec(
        size=96,
        crop_min=0.08,
        crop_ratio=(3 / 4, 4 / 3),
        flip=0.5,
        jitter=0.8,
        brightness=0.4,
        contrast=0.4,
        saturation=0.2,
        hue=0.1,
        gray=0.2,
        blur=1.0,
        blur_kernel=23,
        blur_sigma=(0.1, 2.0),
    )
    assert two == dataclasses.replace(one, blur=0.5)


def test_small_has_no_blur_until_a_kernel_is_given():
    one, two = specs("small", 32)
    assert one == two
    assert (one.blur, one.saturation, one.crop_min) == (0.0, 0.4, 0.08)
    one, two = specs("small", 32, blur_kernel=3)
    assert (one.blur, two.blur, one.blur_kernel) == (1.0, 0.5, 3)


def test_gray_neither_mirrors_nor_crops_nor_colours():
    for spec in specs("gray", 12):
        assert not any([spec.flip, spec.vertical_flip, spec.jitter, spec.gray, spec.blur])
        assert (spec.crop_min, spec.rotation, spec.scale) == (1.0, 0.3, (0.75, 1.15))


def test_free_is_natural_at_any_angle():
    natural, free = specs()[1], specs("free")[1]
    assert (free.rotation, free.vertical_flip) == (math.pi, 0.5)
    for field in ("crop_min", "flip", "jitter", "hue", "gray", "blur", "blur_kernel"):
        assert getattr(free, field) == getattr(natural, field)


def test_none_only_resizes():
    assert specs("none") == (ViewSpec(96), ViewSpec(96))
    assert not ViewSpec(96).moves


def test_the_users_options_win():
    one, two = specs(crop_min=0.3, blur_kernel=9, solarise=0.2, sobel=True)
    assert (one.crop_min, one.blur_kernel, one.sobel) == (0.3, 9, True)
    assert (two.crop_min, two.blur_kernel, two.sobel) == (0.3, 9, True)
    assert (one.solarise, two.solarise) == (0.0, 0.2)
    one, two = specs(blur_kernel=0)
    assert (one.blur, two.blur) == (0.0, 0.0)


def test_an_unsettled_config_is_refused():
    with pytest.raises(ValueError, match="image_size=None, preset=small: settle"):
        view_specs(Config(preset="small"))
