"""What the dice decide: against kornia's generator, plain numpy matrices and counted shares."""

import dataclasses
import math

import kornia
import numpy as np
import pytest
import torch
from scipy import stats

from concurl.views import augment, draw
from concurl.views.dice import dice
from concurl.views.presets import ViewSpec

N = 20_000


def rolls(n=N):
    return dice(0, 0, torch.arange(n), 0, draw.COLUMNS)


def noise(n, side):
    return torch.randint(0, 256, (n, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("height", "width", "crop_min"), [(64, 64, 0.08), (60, 90, 0.3)])
def test_crops_are_distributed_as_kornias(height, width, crop_min):
    spec = ViewSpec(32, crop_min=crop_min)
    top, rows, left, columns = draw.crop_box(spec, rolls(), height, width)
    torch.manual_seed(0)
    generator = kornia.augmentation.random_generator.ResizedCropGenerator(
        (32, 32), scale=(crop_min, 1.0), ratio=(3 / 4, 4 / 3)
    )
    corners = generator((N, 3, height, width))["src"]  # (N, 4, 2), x before y
    left_, top_ = corners[:, 0].T
    columns_, rows_ = (corners[:, 2] - corners[:, 0] + 1).T
    across, across_ = left / (width - columns + 1), left_ / (width - columns_ + 1)
    down, down_ = top / (height - rows + 1), top_ / (height - rows_ + 1)
    pairs = {
        "area": (rows * columns, rows_ * columns_),
        "ratio": (columns / rows, columns_ / rows_),
        "top": (top, top_),
        "left": (left, left_),
        "free columns left of the crop": (across, across_),
        "away from the diagonal": (across - down, across_ - down_),
    }
    for name, (ours, theirs) in pairs.items():
        assert stats.ks_2samp(ours.numpy(), theirs.numpy()).pvalue > 1e-3, name


@pytest.mark.parametrize(("height", "width"), [(32, 32), (7, 5), (20, 100), (100, 20)])
def test_crops_are_whole_pixels_inside_the_image(height, width):
    box = draw.crop_box(ViewSpec(8, crop_min=0.08), rolls(), height, width)
    for start, length, n in ((box.top, box.rows, height), (box.left, box.columns, width)):
        assert torch.equal(start, start.round())
        assert torch.equal(length, length.round())
        assert (start >= 0).all()
        assert (length >= 1).all()
        assert (start + length <= n).all()
    assert box.top.unique().numel() > 1


def test_no_crop_is_the_central_square():
    box = draw.crop_box(ViewSpec(8), rolls(3), 20, 50)
    assert [values.tolist() for values in box] == [[0] * 3, [20] * 3, [15] * 3, [20] * 3]


def test_the_affine_map_is_the_product_of_its_parts():
    spec = ViewSpec(8, crop_min=0.2, flip=0.5, vertical_flip=0.5, rotation=1.0, scale=(0.5, 2.0), shear=0.3, shift=0.2)
    height, width, u = 30, 40, rolls(50)
    box = draw.crop_box(spec, u, height, width)
    flip, vertical = u[:, draw.FLIP] < 0.5, u[:, draw.VERTICAL_FLIP] < 0.5
    got = draw.affine_map(spec, u, box, flip, vertical, height, width)

    def affine(a, b, c, d, x=0.0, y=0.0):
        return np.array([[a, b, x], [c, d, y], [0, 0, 1]])

    for k, v in enumerate(u.double().numpy()):
        angle, shear = 2 * v[draw.ANGLE] - 1, 0.6 * v[draw.SHEAR] - 0.3
        scale = 0.5 + 1.5 * v[draw.SCALE]
        top, rows, left, columns = (float(values[k]) for values in box)
        expected = (
            affine(2 / width, 0, 0, 2 / height, -1, -1)  # pixels -> the image's -1 to 1
            @ affine(1, 0, 0, 1, left, top)
            @ affine(columns / 2, 0, 0, rows / 2, columns / 2, rows / 2)  # the crop's -1 to 1 -> pixels
            @ affine(1, 0, 0, 1, 0.8 * v[draw.SHIFT_X] - 0.4, 0.8 * v[draw.SHIFT_Y] - 0.4)
            @ affine(math.cos(angle), -math.sin(angle), math.sin(angle), math.cos(angle))
            @ affine(1, shear, 0, 1)
            @ affine(1 / scale, 0, 0, 1 / scale)
            @ affine(-1 if flip[k] else 1, 0, 0, -1 if vertical[k] else 1)
        )
        np.testing.assert_allclose(got[k].numpy(), expected[:2], atol=1e-5)


def test_without_affine_parts_a_warp_is_the_crop():
    # inside the crop only: at its border the warp sees the image go on, the crop does not
    x = augment.from_uint8(noise(4, 40))
    u = rolls(4)
    spec = ViewSpec(48, crop_min=0.3, flip=0.5)
    box, flip = draw.crop_box(spec, u, 40, 40), u[:, draw.FLIP] < 0.5
    theta = draw.affine_map(spec, u, box, flip, flip & False, 40, 40)
    warped = augment.warp(x, theta, 48, "border")
    cropped = draw._move(x, spec, u)
    torch.testing.assert_close(warped[:, 3:-3, :, 3:-3], cropped[:, 3:-3, :, 3:-3], atol=1e-4, rtol=0)


def test_beyond_the_image_lies_what_the_spec_says():
    x, u = augment.from_uint8(noise(4, 8)), rolls(4)
    moved = {}
    for padding in ("border", "reflection"):
        spec = ViewSpec(8, shift=0.4, padding=padding)
        box, flip = draw.crop_box(spec, u, 8, 8), u[:, draw.FLIP] < 0
        theta = draw.affine_map(spec, u, box, flip, flip, 8, 8)
        moved[padding] = draw._move(x, spec, u)
        assert torch.equal(moved[padding], augment.warp(x, theta, 8, padding))
    assert ((moved["border"] - moved["reflection"]).abs().amax((1, 2, 3)) > 0.05).all()


def test_quarter_turns_leave_the_pixels_whole():
    x = augment.from_uint8(noise(64, 8))
    spec = ViewSpec(8, rotation=math.pi, quarter_turns=1.0, padding="reflection")
    moved = draw._move(x, spec, rolls(64))
    turns = []
    for image, view in zip(x.transpose(1, 2), moved.transpose(1, 2), strict=True):
        differences = [(torch.rot90(image, k, (1, 2)) - view).abs().max().item() for k in range(4)]
        assert min(differences) < 1e-5
        turns.append(differences.index(min(differences)))
    assert set(turns) == {0, 1, 2, 3}


def first(n):
    return torch.zeros(n, dtype=torch.bool)


def test_the_two_views_have_chances_of_their_own():
    """Side by side in one batch: the first view always blurred and never solarised, the second the other way round."""
    x, u = augment.from_uint8(noise(1, 8).expand(64, -1, -1, -1)), rolls(64)
    second = torch.arange(64) % 2 == 1
    spec = ViewSpec(8, blur=(1.0, 0.0), blur_sigma=(1.0, 2.0), solarise=(0.0, 1.0))
    view = draw.random_view(x, spec, u, second)
    solarised = augment.normalise(augment.solarise(x, ~first(64)))
    torch.testing.assert_close(view[second], solarised[second], atol=1e-4, rtol=0)
    assert (view[~second].std((2, 3)) < augment.normalise(x)[~second].std((2, 3))).all()


JITTER = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}


@pytest.mark.parametrize(
    ("share", "options"),
    [
        (0.5, {"flip": 0.5}),
        (0.3, {"vertical_flip": 0.3}),
        (0.8, {"jitter": 0.8, **JITTER}),
        (0.2, {"gray": 0.2}),
        (0.5, {"blur": (0.5, 0.0), "blur_kernel": 3, "blur_sigma": (0.5, 1.0)}),
        (0.2, {"solarise": (0.2, 0.0)}),
    ],
)
def test_an_operation_befalls_its_share_of_the_images(share, options):
    n = 2000
    x = augment.from_uint8(noise(1, 8).expand(n, -1, -1, -1))
    view = draw.random_view(x, ViewSpec(8, **options), rolls(n), first(n))
    changed = (view - augment.normalise(x)).abs().amax((1, 2, 3)) > 1e-4
    assert abs(changed.double().mean() - share) < 5 * (share * (1 - share) / n) ** 0.5


@pytest.mark.parametrize(
    ("colours", "brightness", "contrast", "saturation"),
    [
        (
            "torchvision",
            kornia.enhance.adjust_brightness_accumulative,
            kornia.enhance.adjust_contrast_with_mean_subtraction,
            kornia.enhance.adjust_saturation_with_gray_subtraction,
        ),
        (  # as in its ColorJiggle
            "kornia",
            lambda x, factor: kornia.enhance.adjust_brightness(x, factor - 1),
            kornia.enhance.adjust_contrast,
            kornia.enhance.adjust_saturation,
        ),
    ],
)
def test_jitter_draws_kornias_ranges_in_the_stated_order(colours, brightness, contrast, saturation):
    images, u = noise(32, 12), rolls(32)
    spec = ViewSpec(12, colours=colours, jitter=0.8, brightness=0.4, contrast=0.3, saturation=0.2, hue=0.1)
    got = draw.random_view(augment.from_uint8(images), spec, u, first(32))

    x = images / 255
    y = brightness(x, 0.6 + 0.8 * u[:, draw.BRIGHTNESS])
    y = contrast(y, 0.7 + 0.6 * u[:, draw.CONTRAST])
    y = saturation(y, 0.8 + 0.4 * u[:, draw.SATURATION])
    y = kornia.enhance.adjust_hue(y, (0.2 * u[:, draw.HUE] - 0.1) * 2 * math.pi)
    y = torch.where((u[:, draw.JITTER] < 0.8)[:, None, None, None], y, x)
    expected = augment.normalise(y.transpose(1, 2))
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=0)


class Watched:
    """Dice that remember which columns were asked for."""

    def __init__(self, u):
        self.u, self.device, self.read = u, u.device, []

    def __getitem__(self, place):
        self.read += np.arange(draw.COLUMNS)[place[1]].ravel().tolist()
        return self.u[place]


def test_no_two_operations_share_their_dice():
    """If flips did, no view would be mirrored along one axis alone."""
    moved = ViewSpec(8, crop_min=0.2, flip=0.5, vertical_flip=0.5, rotation=1, quarter_turns=0.5, scale=(0.5, 2))
    spec = dataclasses.replace(
        moved, shear=0.3, shift=0.2, jitter=0.8, **JITTER, gray=0.2, blur=(1, 0.5), solarise=(0, 0.2)
    )
    u = Watched(rolls(4))
    draw.random_view(augment.from_uint8(noise(4, 8)), spec, u, torch.tensor([False, False, True, True]))
    assert sorted(u.read) == list(range(draw.COLUMNS))


def test_an_operation_switched_off_leaves_the_others_as_they_were():
    x = augment.from_uint8(noise(64, 32))
    u = rolls(64)
    half = ViewSpec(32, crop_min=0.2, flip=0.5, jitter=0.8, **JITTER, gray=0.2, blur=(0.5, 0.5))
    off = ViewSpec(32, crop_min=0.2, flip=0.5, jitter=0.8, **JITTER, gray=0.2)
    blurred = (u[:, draw.BLUR] < 0.5) & (u[:, draw.SIGMA] > 0.1)  # at a sigma of 0.1 to 0.3 there is little to see
    a, b = draw.random_view(x, half, u, first(64)), draw.random_view(x, off, u, first(64))
    difference = (a - b).abs().amax((1, 2, 3))
    assert (difference[u[:, draw.BLUR] >= 0.5] == 0).all()
    assert (difference[blurred] > 1e-2).all()
