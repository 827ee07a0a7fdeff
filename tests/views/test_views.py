"""The public face: what a batch's views depend on, and the evaluation view against F.interpolate."""

import pytest
import torch
import torch.nn.functional as F

from concurl.config import Config
from concurl.views import augment
from concurl.views.views import Views, evaluation_view

STEP = torch.tensor(3)


def images(batch=8, height=40, width=40):
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(batch, 3, 8, 8, generator=generator)
    fine = F.interpolate(coarse, (height, width), mode="bicubic").clamp(0, 1)
    return (fine * 255).to(torch.uint8)


def views(preset="natural", image_size=32, **options):
    return Views(Config(preset=preset, image_size=image_size, **options))


@pytest.mark.parametrize("preset", ["natural", "small", "gray", "free", "none"])
@pytest.mark.parametrize("shape", [(32, 32), (40, 52)])
def test_shapes_and_units(preset, shape):
    x1, x2 = views(preset)(images(8, *shape), torch.arange(8), STEP)
    for x in (x1, x2):
        assert x.shape == (8, 3, 32, 32)
        assert x.dtype == torch.float32
        assert x.is_contiguous()
        low, high = augment.normalise(torch.tensor([0.0, 1.0]).view(2, 1, 1, 1).expand(2, 1, 3, 1)).squeeze()
        assert (x >= low.view(3, 1, 1) - 1e-4).all()
        assert (x <= high.view(3, 1, 1) + 1e-4).all()
        assert x.std() > 0.1
    assert torch.equal(x1, x2) == (preset == "none")


def test_more_views_leave_the_first_two_as_they_are():
    x, ids = images(), torch.arange(8)
    two, four = views()(x, ids, STEP), views(n_views=4)(x, ids, STEP)
    assert len(four) == 4
    assert all(torch.equal(a, b) for a, b in zip(two, four, strict=False))
    for other in four[:2]:
        assert all(((view - other).abs().amax((1, 2, 3)) > 1e-2).all() for view in four[2:])


def test_every_second_view_is_solarised_and_blurred_less_often():
    x, ids = images(64, 32, 32), torch.arange(64)
    plain, *_ = views("none")(x, ids, STEP)
    bright = (x >= 128).float()
    inverted = augment.normalise((bright * (1 - x / 255) + (1 - bright) * x / 255).transpose(1, 2))
    for made, expected in zip(views("none", solarise=1.0, n_views=4)(x, ids, STEP), (plain, inverted) * 2, strict=True):
        torch.testing.assert_close(made, expected)
    blurred = views("none", blur_kernel=9, n_views=4)(x, ids, STEP)
    share = [((view - plain).abs().amax((1, 2, 3)) > 1e-6).float().mean() for view in blurred]
    assert min(share[0], share[2]) > 0.85  # always, but some of the blurs are too narrow to be seen
    assert 0.3 < min(share[1], share[3]) <= max(share[1], share[3]) < 0.7  # every other time


def test_sobel_has_two_channels():
    x1, x2 = views(sobel=True)(images(), torch.arange(8), STEP)
    assert (Config(sobel=True).channels, Config().channels) == (2, 3)
    assert x1.shape == x2.shape == (8, 2, 32, 32)
    assert evaluation_view(images(), 32, sobel=True).shape == (8, 2, 32, 32)
    plain = views()(images(), torch.arange(8), STEP)
    torch.testing.assert_close(x2, augment.sobel(plain[1]))  # after everything else


def test_a_view_depends_on_seed_step_and_image_alone():
    made, x = views(), images()
    ids = torch.tensor([5, 900, 2, 7, 0, 41, 3, 11])
    x1, x2 = made(x, ids, STEP)
    torch.manual_seed(99)  # nobody's generator is asked
    order = torch.tensor([3, 0, 7, 1, 2, 6, 5, 4])
    for got, expected in zip(made(x[order], ids[order], 3), (x1, x2), strict=True):
        torch.testing.assert_close(got, expected[order], atol=1e-5, rtol=0)
    for got, expected in zip(made(x[2:3], ids[2:3], STEP), (x1, x2), strict=True):
        torch.testing.assert_close(got, expected[2:3], atol=1e-5, rtol=0)
    others = [made(x, ids, 4)[0], made(x, ids + 1, 3)[0], views(seed=1)(x, ids, 3)[0], x2]
    for other in others:
        assert ((other - x1).abs().amax((1, 2, 3)) > 1e-2).all()


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    views("free")(images(), torch.arange(8), STEP)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("preset", "options"), [("natural", {"solarise": 0.5}), ("free", {"sobel": True})])
def test_compiled_whole_and_equal_to_eager(preset, options):
    made, x, ids = views(preset, **options), images(4), torch.arange(4)
    compiled = torch.compile(made, fullgraph=True, dynamic=False, backend="aot_eager")
    for step in (torch.tensor(0), torch.tensor(1)):
        for got, expected in zip(compiled(x, ids, step), made(x, ids, step), strict=True):
            torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


@pytest.mark.slow  # a minute of code generation
def test_the_default_compiler_makes_the_same_views():
    # at 32 px and 512 images, g++ 12 once flipped every image: undefined overflow in the hash of the dice
    made, x, ids = views("small"), images(64, 32, 32).repeat(8, 1, 1, 1), torch.arange(512)
    compiled = torch.compile(made, fullgraph=True, dynamic=False)
    for got, expected in zip(compiled(x, ids, STEP), made(x, ids, STEP), strict=True):
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=0)


def test_autocast_does_not_coarsen_the_pixels():
    expected = views()(images(), torch.arange(8), STEP)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = views()(images(), torch.arange(8), STEP)
        evaluated = evaluation_view(images(), 32)
    assert all(map(torch.equal, got, expected))
    assert torch.equal(evaluated, evaluation_view(images(), 32))


@pytest.mark.parametrize(
    ("height", "width", "size", "resized"),
    [
        (40, 40, 32, (32, 32)),
        (20, 30, 32, (32, 48)),  # enlarged
        (70, 48, 32, (46, 32)),
        (300, 400, 224, (256, 341)),  # above 128 px: 256 / 224 of the side
        (256, 256, 224, (256, 256)),
        (183, 183, 160, (183, 183)),
        (128, 128, 128, (128, 128)),
    ],
)
def test_evaluation_is_resize_and_centre_crop(height, width, size, resized):
    x = images(2, height, width)
    y = F.interpolate(x / 255, resized, mode="bilinear", align_corners=False, antialias=True)
    top, left = (round((n - size) / 2) for n in resized)
    y = y[:, :, top : top + size, left : left + size]
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (augment.MEAN, augment.STD))
    torch.testing.assert_close(evaluation_view(x, size), (y - mean) / std, atol=1e-4, rtol=0)


def test_evaluation_at_the_right_size_changes_no_pixel():
    x = images(2, 32, 32)
    expected = augment.normalise((x / 255).transpose(1, 2))
    assert torch.equal(evaluation_view(x, 32), expected)
    assert torch.equal(views("none")(x, torch.arange(2), 0)[0], expected)


def test_the_preset_none_sees_what_evaluation_sees():
    x = images(2, 60, 40)
    got, _ = views("none")(x, torch.arange(2), 0)
    # but for the first and last row, where evaluation has also looked at what it then cuts off
    torch.testing.assert_close(got[:, :, 1:-1], evaluation_view(x, 32)[:, :, 1:-1], atol=1e-4, rtol=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("preset", ["natural", "free"])
def test_cuda_draws_the_same_and_a_graph_draws_anew(preset):
    made, x, ids = views(preset), images(), torch.arange(8)
    x_, ids_, step_ = x.cuda(), ids.cuda(), torch.tensor(3, device="cuda")
    for _ in range(2):  # cuBLAS sets itself up outside the capture
        made(x_, ids_, step_)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = made(x_, ids_, step_)
    for step in (3, 4):
        step_.fill_(step)
        graph.replay()
        for got, expected in zip(out, made(x, ids, step), strict=True):
            torch.testing.assert_close(got.cpu(), expected, atol=1e-2, rtol=0)  # tf32 may be on
