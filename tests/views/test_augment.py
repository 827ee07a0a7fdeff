"""Each operation against kornia, F.interpolate or torch.rot90, image by image."""

import math

import kornia
import pytest
import torch
import torch.nn.functional as F

from concurl.views import augment
from concurl.views.draw import FORMULAS


def photos(batch: int = 6, height: int = 20, width: int = 24) -> torch.Tensor:
    """Smooth noise with some saturated, gray and black pixels, (B, 3, H, W)."""
    generator = torch.Generator().manual_seed(batch * height + width)
    x = torch.rand(batch, 3, height, width, generator=generator)
    x = (F.avg_pool2d(x, 3, 1, 1) * 1.6 - 0.3).clamp(0, 1)
    x[:, :, 0, :4] = torch.tensor([0.0, 0.25, 0.5, 1.0])
    return x


def rows_first(x):
    return x.transpose(1, 2).contiguous()  # (B, 3, H, W) -> (B, H, 3, W)


def images_first(x):
    return x.transpose(1, 2)


def test_from_uint8_is_exact_and_turns_the_layout():
    images = torch.arange(2 * 3 * 4 * 5, dtype=torch.uint8).view(2, 3, 4, 5)
    x = augment.from_uint8(images)
    assert x.shape == (2, 4, 3, 5)
    assert x.is_contiguous()
    assert torch.equal(images_first(x), images / 255)


def test_from_uint8_names_what_it_was_given():
    with pytest.raises(ValueError, match=r"torch\.float32 \(2, 3, 4, 4\)"):
        augment.from_uint8(torch.rand(2, 3, 4, 4))


# ---- geometry ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [8, 33])
def test_a_crop_is_slicing_and_interpolating(size):
    x = photos(5, 24, 20)
    boxes = [(0, 24, 0, 20), (3, 9, 5, 12), (23, 1, 19, 1), (1, 17, 0, 3), (6, 6, 6, 14)]
    flips = [(False, False), (True, False), (False, True), (True, True), (False, True)]
    top, rows, left, columns = torch.tensor(boxes, dtype=torch.float32).T
    vertical, flip = torch.tensor(flips).T
    got = augment.resample(
        rows_first(x),
        augment.resampling_matrix(top, rows, 24, size, vertical),
        augment.resampling_matrix(left, columns, 20, size, flip),
    )
    for k, ((t, h, l, w), (v, f)) in enumerate(zip(boxes, flips, strict=True)):
        crop = x[k : k + 1, :, t : t + h, l : l + w]
        expected = F.interpolate(crop, (size, size), mode="bilinear", align_corners=False, antialias=True)
        if min(size / h, size / w) >= 1:  # where nothing shrinks, antialiasing must change nothing
            plain = F.interpolate(crop, (size, size), mode="bilinear", align_corners=False)
            torch.testing.assert_close(expected, plain)
        expected = expected.flip([d for d, yes in ((2, v), (3, f)) if yes])
        torch.testing.assert_close(images_first(got)[k], expected[0], atol=1e-5, rtol=0)


def test_a_whole_image_at_its_own_size_is_left_alone():
    x = rows_first(photos(2, 16, 16))
    matrix = augment.resampling_matrix(torch.zeros(2), torch.full((2,), 16.0), 16, 16)
    assert torch.equal(matrix, torch.eye(16).expand(2, -1, -1))
    torch.testing.assert_close(augment.resample(x, matrix, matrix), x, atol=1e-6, rtol=0)


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_quarter_turn_moves_pixels_and_blends_none(turns):
    x = photos(2, 16, 16)
    angle = torch.tensor(turns * math.pi / 2)
    cos, sin, zero = angle.cos(), angle.sin(), torch.tensor(0.0)
    theta = torch.stack([cos, -sin, zero, sin, cos, zero]).view(1, 2, 3).expand(2, -1, -1)
    got = augment.warp(rows_first(x), theta, 16, "border")
    torch.testing.assert_close(images_first(got), torch.rot90(x, turns, (2, 3)), atol=1e-5, rtol=0)


# ---- colour ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (augment.brightness, kornia.enhance.adjust_brightness_accumulative),
        (augment.contrast, kornia.enhance.adjust_contrast_with_mean_subtraction),
        (augment.saturation, kornia.enhance.adjust_saturation_with_gray_subtraction),
        (augment.added_brightness, lambda x, factor: kornia.enhance.adjust_brightness(x, factor - 1)),
        (augment.contrast_from_black, kornia.enhance.adjust_contrast),
        (augment.hsv_saturation, kornia.enhance.adjust_saturation),
    ],
)
def test_factors_are_kornias(ours, theirs):
    x = photos()
    factor = torch.tensor([0.0, 0.6, 1.0, 1.2, 1.4, 2.0])
    torch.testing.assert_close(images_first(ours(rows_first(x), factor)), theirs(x, factor), atol=1e-6, rtol=0)


@pytest.mark.parametrize("change", [change for family in FORMULAS.values() for change in family])
def test_factor_one_changes_no_bit(change):
    x = rows_first(photos())
    assert torch.equal(change(x, torch.ones(6)), x)


def test_hue_is_kornias():
    x = photos(7)
    turns = torch.tensor([-0.5, -0.1, -0.03, 0.0, 0.05, 0.1, 0.5])
    expected = kornia.enhance.adjust_hue(x, turns * 2 * math.pi)
    torch.testing.assert_close(images_first(augment.hue(rows_first(x), turns)), expected, atol=1e-5, rtol=0)


def test_hue_of_pure_colours():
    corners = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0.3, 0.3, 0.3], [0, 0, 0]])
    x = corners.float().T.reshape(1, 1, 3, 6)  # one row of six pixels
    turned = augment.hue(x, torch.tensor([1 / 3]))[0, 0].T
    expected = torch.tensor([[0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 1], [0.3, 0.3, 0.3], [0, 0, 0]])
    torch.testing.assert_close(turned, expected.float(), atol=1e-5, rtol=0)


def test_drop_colour_is_kornias_gray_where_chosen():
    x = photos(4)
    chosen = torch.tensor([True, False, True, False])
    got = images_first(augment.drop_colour(rows_first(x), chosen))
    torch.testing.assert_close(got[chosen], kornia.color.rgb_to_grayscale(x[chosen]).expand(-1, 3, -1, -1))
    assert torch.equal(got[~chosen], x[~chosen])


def test_solarise_is_kornias_where_chosen():
    x = photos(4)
    chosen = torch.tensor([True, False, True, False])
    got = images_first(augment.solarise(rows_first(x), chosen))
    torch.testing.assert_close(got[chosen], kornia.enhance.solarize(x[chosen], 0.5))
    assert torch.equal(got[~chosen], x[~chosen])


# ---- filters -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kernel", "size"), [(3, 32), (9, 12), (23, 32), (23, 96), (23, 12)])
def test_blur_is_kornias(kernel, size):
    x = photos(6, size, size)
    sigma = torch.tensor([0.1, 0.35, 0.7, 1.0, 1.5, 2.0])
    matrix = augment.blur_matrix(sigma, kernel, size)
    got = augment.resample(rows_first(x), matrix, matrix)
    expected = kornia.filters.gaussian_blur2d(x, (kernel, kernel), sigma[:, None].expand(-1, 2), "reflect")
    torch.testing.assert_close(images_first(got), expected, atol=1e-5, rtol=0)


def test_a_kernel_beyond_the_mirror_is_cut_to_it():
    sigma = torch.tensor([0.5, 2.0, 8.0])
    assert torch.equal(augment.blur_matrix(sigma, 51, 12), augment.blur_matrix(sigma, 23, 12))
    assert not torch.equal(augment.blur_matrix(sigma, 21, 12), augment.blur_matrix(sigma, 23, 12))


def test_no_sigma_no_blur():
    x = rows_first(photos(2, 32, 32))
    matrix = augment.blur_matrix(torch.full((2,), 1e-3), 23, 32)
    torch.testing.assert_close(augment.resample(x, matrix, matrix), x, atol=1e-12, rtol=0)


def test_normalise_is_imagenets():
    x = photos()
    expected = kornia.enhance.normalize(x, torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225]))
    got = augment.normalise(rows_first(x))
    assert got.is_contiguous()
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


def test_sobel_is_kornias_gradient_of_gray():
    x = photos() * 4 - 2  # it comes after normalise
    gray = 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]
    expected = kornia.filters.spatial_gradient(gray, mode="sobel", order=1, normalized=True)[:, 0]
    torch.testing.assert_close(augment.sobel(x), expected, atol=1e-5, rtol=0)
