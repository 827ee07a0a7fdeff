"""The evaluation pass: an image's numbers depend on nothing but the image."""

import numpy as np
import pytest
import torch

from concurl.network.embed import CHUNK_CPU, embed
from concurl.network.model import Model
from concurl.views.views import evaluation_view

N = 80


def make_model(config, channels=3):
    torch.manual_seed(0)
    model = Model(config).to(memory_format=torch.channels_last).train()
    for _ in range(5):
        model(torch.randn(32, channels, config.image_size, config.image_size))
    model.update_target(torch.tensor(0.5))
    return model


def pictures(height, width, n=N):
    return np.random.default_rng(0).integers(0, 256, (n, 3, height, width), dtype=np.uint8)


def joined(model, images, **how):
    """All outputs of both branches side by side, (N, ...)."""
    parts = [
        torch.cat([online.y, online.v, online.z, online.w, target.y, target.v, target.z], dim=1)
        for part in embed(model, images, image_size=8, **how)
        for online, target in [(part["online"], part["target"])]
    ]
    return torch.cat(parts)


@pytest.mark.parametrize(("height", "width", "sobel"), [(8, 8, False), (8, 8, True), (20, 30, False), (13, 11, False)])
def test_company_does_not_matter_to_the_bit(tiny, height, width, sobel):
    model = make_model(tiny(sobel=sobel), 2 if sobel else 3)
    images = pictures(height, width)
    together = joined(model, images, sobel=sobel)
    assert len(together) == N > 2 * CHUNK_CPU
    assert not together.requires_grad
    sevens = torch.cat([joined(model, images[i : i + 7], sobel=sobel) for i in range(0, N, 7)])
    assert torch.equal(sevens, together)
    for i in [0, 1, 31, 32, 50, 79]:
        assert torch.equal(joined(model, images[i : i + 1], sobel=sobel)[0], together[i])
    assert torch.equal(joined(model, images[::-1].copy(), sobel=sobel), together.flip(0))


def test_equals_the_networks_in_evaluation_mode(tiny):
    model, images = make_model(tiny()), pictures(10, 12, n=40)
    together = joined(model, images)
    model.eval()
    x = evaluation_view(torch.from_numpy(images), 8)
    with torch.no_grad():
        online, target = model(x), model.target(x)
    want = torch.cat([online.y, online.v, online.z, online.w, target.y, target.v, target.z], dim=1)
    torch.testing.assert_close(together, want, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(online.v, target.v, atol=1e-2)  # the branches are not mixed up


def test_arrays_and_tensors_alike(tiny):
    model, images = make_model(tiny()), pictures(8, 8, n=9)
    assert torch.equal(joined(model, images), joined(model, torch.from_numpy(images)))


@pytest.mark.parametrize("training", [True, False])
def test_leaves_the_model_as_it_was(tiny, training):
    model = make_model(tiny()).train(training)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    for _ in embed(model, pictures(8, 8, n=40), image_size=8):
        pass
    next(embed(model, pictures(8, 8, n=40), image_size=8))  # and when only a part is asked for
    assert all(module.training is training for module in model.modules())
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())


def test_autocast_gives_float32_near_the_full_precision(tiny):
    model, images = make_model(tiny()), pictures(8, 8, n=5)
    half, full = joined(model, images, autocast=torch.bfloat16), joined(model, images)
    (part,) = embed(model, images, image_size=8, autocast=torch.bfloat16)
    assert {t.dtype for branch in part.values() for t in branch if t is not None} == {torch.float32}
    assert not torch.equal(half, full)
    torch.testing.assert_close(half, full, rtol=0.1, atol=0.1)


def test_an_autocast_around_it_does_not_hold_the_weights_of_the_first_pass(tiny):
    model, images = make_model(tiny()), pictures(8, 8, n=5)
    with torch.autocast("cpu", enabled=False):
        before = joined(model, images, autocast=torch.bfloat16)
        model.online.encoder.stem[0].weight.data.neg_()  # as a step of training would, in place
        after = joined(model, images, autocast=torch.bfloat16)
    assert not torch.equal(before, after)
    assert torch.equal(joined(model, images, autocast=torch.bfloat16), after)


def test_no_images_no_parts(tiny):
    assert list(embed(make_model(tiny()), pictures(8, 8, n=0), image_size=8)) == []


@pytest.mark.parametrize("branch", ["online", "target"])
def test_a_branch_that_is_not_asked_for_is_not_computed(tiny, branch):
    model, images = make_model(tiny()), pictures(8, 8, n=5)
    both = next(embed(model, images, image_size=8))
    other = model.target if branch == "online" else model.online
    other.forward = None  # calling it would fail
    (alone,) = embed(model, images, image_size=8, branches=[branch])
    assert list(alone) == [branch]
    assert torch.equal(alone[branch].z, both[branch].z)
