"""How many clusters: groups that are there are found again on other images, and the advice is their number."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from concurl.clustering.stability import CLOSE, advised, stabilities


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
    assert advised(found) == n_groups


def test_nothing_is_stable_where_there_is_nothing() -> None:
    found = dict(stabilities(groups(1, 1.0), range(2, 12)))
    assert max(found.values()) < 0.5


def test_the_length_of_a_vector_plays_no_part_and_a_seed_gives_the_same() -> None:
    x = groups(4, 0.3)
    lengths = 0.5 + torch.rand(300, 1, generator=torch.Generator().manual_seed(1))
    assert dict(stabilities(x, [3, 5], seed=2)) == pytest.approx(dict(stabilities(x * lengths, [3, 5], seed=2)))


def test_of_equals_the_largest_is_advised() -> None:
    assert advised({2: 0.95, 3: 0.2, 4: 0.95 - CLOSE / 2, 5: 0.95 - 2 * CLOSE}) == 4
