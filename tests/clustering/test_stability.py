"""How many clusters: groups that are there are found again on other images, and the advice is their number."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from concurl.clustering.stability import CLOSE, NEARLY, stabilities, standing_out


def groups(n_groups: int, spread: float, seed: int = 0) -> Tensor:
    """300 points around directions of a space of 16 dimensions."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.linalg.qr(torch.randn(16, 16, generator=generator))[0][:n_groups]
    noise = torch.randn(300, 16, generator=generator)
    return normalize(centres[torch.arange(300) % n_groups] + spread * noise, dim=1)


@pytest.mark.parametrize("n_groups", [3, 5, 8])
def test_as_many_as_there_are(n_groups: int) -> None:
    found = dict(stabilities(groups(n_groups, 0.1), range(2, 12)))
    assert found[n_groups] > 0.99
    assert all(stability < 0.95 for k, stability in found.items() if k != n_groups)
    assert standing_out(found)[-1] == n_groups


def test_nothing_is_stable_where_there_is_nothing() -> None:
    found = dict(stabilities(groups(1, 1.0), range(2, 12)))
    assert max(found.values()) < 0.5


@pytest.mark.parametrize("different", [1, 3])
def test_copies_do_not_make_more_groups(different: int) -> None:
    found = dict(stabilities(groups(3, 0.0)[torch.arange(60) % different], range(2, 12)))
    assert [k for k, stability in found.items() if stability > 0.9] == [3] * (different == 3)


def test_the_length_of_a_vector_plays_no_part_and_a_seed_gives_the_same() -> None:
    x = groups(4, 0.3)
    lengths = 0.5 + torch.rand(300, 1, generator=torch.Generator().manual_seed(1))
    assert dict(stabilities(x, [3, 5], seed=2)) == pytest.approx(dict(stabilities(x * lengths, [3, 5], seed=2)))


def test_of_equals_the_largest_stands_out() -> None:
    assert standing_out({2: 0.4, 3: 0.95, 4: 0.95 - CLOSE / 2, 5: 0.95 - 2 * CLOSE}) == [4]


def test_each_top_that_is_nearly_as_high_stands_out() -> None:
    # Rounded, of CIFAR-10's features after 850 epochs of BYOL; 2 are animals and vehicles, 10 are the classes.
    found = {2: 0.99, 3: 0.68, 4: 0.95, 5: 0.90, 6: 0.78, 7: 0.79, 8: 0.85, 9: 0.84, 10: 0.94, 11: 0.87, 12: 0.82}
    assert standing_out(found) == [2, 4, 10]
    assert standing_out(found | {10: 0.99 * NEARLY + 0.001}) == [2, 4, 10]
    assert standing_out(found | {10: 0.99 * NEARLY - 0.001}) == [2, 4]


def test_a_ripple_does_not_stand_out() -> None:
    # Of the demo's features, trained with one thread: nine groups, and ripples of 0.008 and 0.006 behind them.
    found = {7: 0.732, 8: 0.924, 9: 0.930, 10: 0.889, 11: 0.897, 12: 0.847, 13: 0.853, 14: 0.822, 15: 0.809}
    assert standing_out(found) == [9]
    assert standing_out(found | {13: 0.847 + 1.1 * CLOSE}) == [9, 13]


@pytest.mark.parametrize("found", [{2: 0.99, 3: 0.9, 4: 0.5}, {2: 0.5, 3: 0.9, 4: 0.99}, {2: 1.0, 3: 1.0, 4: 1.0}])
def test_the_first_and_the_last_may_stand_out(found: dict[int, float]) -> None:
    assert standing_out(found) == [4 if found[4] > 0.9 else 2]


def test_where_nothing_is_stable_there_is_an_end_to_the_equals() -> None:
    assert standing_out({2: 0.009, 3: 0.01, 4: 0.011}) == [4]
