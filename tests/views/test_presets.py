"""The presets say what the paper and the options say."""

import math

import pytest

from concurl.config import Config
from concurl.views.presets import ViewSpec, view_spec


def spec(preset="natural", image_size=96, **options):
    return view_spec(Config(preset=preset, image_size=image_size, **options))


def test_natural_is_the_papers():
    assert spec() == ViewSpec(
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
        blur=(1.0, 0.5),
        blur_kernel=23,
        blur_sigma=(0.1, 2.0),
    )


def test_small_has_no_blur_until_a_kernel_is_given():
    small = spec("small", 32)
    assert (small.blur, small.saturation, small.crop_min) == ((0.0, 0.0), 0.4, 0.08)
    small = spec("small", 32, blur_kernel=3)
    assert (small.blur, small.blur_kernel) == ((1.0, 0.5), 3)


def test_gray_neither_mirrors_nor_crops_nor_colours():
    gray = spec("gray", 12)
    assert not any([gray.flip, gray.vertical_flip, gray.saturation, gray.hue, gray.gray, *gray.blur])
    assert (gray.jitter, gray.brightness, gray.contrast) == (0.8, 0.4, 0.4)
    assert (gray.crop_min, gray.rotation, gray.scale) == (1.0, 0.3, (0.75, 1.15))
    assert (gray.shear, gray.shift, gray.padding) == (0.2, 0.1, "border")


def test_free_is_natural_at_any_angle():
    natural, free = spec(), spec("free")
    assert (free.rotation, free.vertical_flip, free.quarter_turns) == (math.pi, 0.5, 0.5)
    assert free.padding == "reflection"
    assert free.crop_min == 0.4 > natural.crop_min  # size tells kinds apart where the magnification is fixed
    for field in ("flip", "jitter", "hue", "gray", "blur", "blur_kernel"):
        assert getattr(free, field) == getattr(natural, field)
    assert spec("free", 64).blur == (0.0, 0.0) != spec("natural", 64).blur  # as small has none
    assert spec("free", 64, blur_kernel=3).blur == (1.0, 0.5)


def test_none_only_resizes():
    assert spec("none") == ViewSpec(96)
    assert not ViewSpec(96).moves


def test_the_users_options_win():
    own = spec(crop_min=0.3, blur_kernel=9, solarise=0.2, sobel=True, colours="kornia")
    assert (own.crop_min, own.blur_kernel, own.sobel, own.solarise) == (0.3, 9, True, (0.0, 0.2))
    assert (own.colours, spec().colours) == ("kornia", "torchvision")
    assert spec(blur_kernel=0).blur == (0.0, 0.0)
    for preset, brightness in (("natural", 0.1), ("gray", 0.0), ("none", 0.3)):
        own = spec(preset, brightness=brightness)
        assert (own.jitter, own.brightness, own.contrast) == (0.8, brightness, brightness)
        assert own.saturation == spec(preset).saturation


@pytest.mark.parametrize(("scale", "size"), [(0.75, 72), (1.25, 120), (0.1, 10)])
def test_views_are_a_share_of_the_images_side(scale, size):
    assert spec(view_scale=scale).size == size
    assert spec(view_scale=0.1, image_size=32).size == 8  # and never less: the networks halve it three times


def test_an_unsettled_config_is_refused():
    with pytest.raises(ValueError, match="image_size=None, preset=small: settle"):
        view_spec(Config(preset="small"))
