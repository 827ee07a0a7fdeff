"""Several ranks in float32: what rounding becomes in training, and what makes much of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rounding import Smooth, bias_without_gradient, disturb, hold_bias

from concurl.training.trainer import Trainer
from ranks import RANKS, pictures, trained


def test_the_projectors_last_bias_has_no_gradient(config):
    trainer = Trainer(config, pictures())
    seen: list[torch.Tensor] = []
    bias_without_gradient(trainer).register_hook(lambda gradient: seen.append(gradient))
    trainer.model.online.projector[-1].weight.register_hook(lambda gradient: seen.append(gradient))
    trainer.model.train()
    images, ids = next(trainer.feed.batches(torch.arange(20), 20))
    trainer.take_step(images, ids, torch.tensor(0), trainer.schedule.table(0, 1)[0], True)
    small, large = sorted(float(gradient.abs().max()) for gradient in seen)
    assert small < 1e-5 * large
    assert seen[0].dim() + seen[1].dim() == 3


@pytest.mark.parametrize("size", RANKS)
def test_fifty_steps_in_float32_are_those_of_one_process(size, config, tmp_path):
    """All that the float64 test has. Its two sources of chaos are out, and rounding stays rounding: 40 times below the mark."""
    how = {"double": False, "encoder": Smooth, "change": hold_bias}
    (want,), found = (trained(n, tmp_path / str(n), config, **how) for n in (1, size))
    assert want["losses"].shape == (50, 4)
    np.testing.assert_allclose(found[0]["losses"], want["losses"], rtol=1e-5, atol=1e-6)


def test_with_kinks_ranks_differ_no_more_than_one_process_from_itself(config, tmp_path):
    """ReLUs and the free bias: a change of 1e-7 in one weight moves one process's losses as far as a second rank does."""
    single = {"double": False}
    (want,) = trained(1, tmp_path / "one", config, **single)
    (moved,) = trained(1, tmp_path / "moved", config, **single, change=disturb)
    (two, _) = trained(2, tmp_path / "two", config, **single)
    own, ranks = (np.abs(other["losses"] - want["losses"]).max() for other in (moved, two))
    print(f"\nlargest difference of a loss in 50 steps: disturbed {own:.1e}, two ranks {ranks:.1e}")
    assert 1e-5 < ranks < 10 * own


@pytest.mark.parametrize("size", RANKS)
def test_fifty_steps_as_users_have_them_in_float32_at_a_rate_that_leaves_rounding_alone(size, config, tmp_path):
    """ResNet, free bias, Adam: 1e-6 still moves the loss by more than ten times the mark, and lets no rounding grow."""
    config = config.replace(learning_rate=1e-6)
    (want,), found = (trained(n, tmp_path / str(n), config, double=False) for n in (1, size))
    (still,) = trained(1, tmp_path / "still", config.replace(learning_rate=1e-9), double=False)
    assert abs(still["losses"][-1, 0] / want["losses"][-1, 0] - 1) > 1e-4
    np.testing.assert_allclose(found[0]["losses"], want["losses"], rtol=1e-5, atol=1e-6)
