"""The dice against the same hash in plain Python, and against what a fair die must do."""

import pytest
import torch
from scipy import stats

from concurl.views.dice import dice

N = 20_000
IDS = torch.arange(N)


def lowbias32(x: int) -> int:
    x &= 0xFFFFFFFF
    x ^= x >> 16
    x = (x * 0x7FEB352D) & 0xFFFFFFFF
    x ^= x >> 15
    x = (x * 0x846CA68B) & 0xFFFFFFFF
    return x ^ (x >> 16)


def reference(seed: int, step: int, image: int, view: int, column: int) -> float:
    state = lowbias32(image)
    for word in (seed, step, view):
        state = lowbias32(3 * state + lowbias32(word))
    return (lowbias32(state + lowbias32(column + 1)) >> 8) / 2**24


@pytest.mark.parametrize(("seed", "step", "view"), [(0, 0, 0), (1, 0, 1), (2**31 - 1, 10**9, 1)])
def test_dice_equal_a_plain_loop_to_the_last_bit(seed, step, view):
    ids = torch.tensor([0, 1, 77, 2**40, 2**62])
    expected = [[reference(seed, step, i, view, c) for c in range(5)] for i in ids.tolist()]
    assert dice(seed, step, ids, view, 5).tolist() == expected


def test_every_column_is_uniform():
    u = dice(0, 3, IDS, 0, 16).double()
    assert u.min() >= 0
    assert u.max() < 1
    assert ((u.mean(0) - 1 / 2).abs() < 5 * (1 / 12 / N) ** 0.5).all()
    assert ((u.var(0) - 1 / 12).abs() < 5 * (1 / 180 / N) ** 0.5).all()
    for column in u.T:
        assert stats.chisquare(torch.histc(column, 64, 0, 1).numpy()).pvalue > 1e-5


def test_every_bit_is_balanced():
    bits = (dice(0, 3, IDS, 0, 8) * 2**24).long()
    for k in range(24):
        assert abs(((bits >> k) & 1).double().mean() - 0.5) < 5 * 0.5 / (8 * N) ** 0.5


@pytest.mark.parametrize("neighbour", ["id", "step", "column", "view", "seed", "step against id"])
def test_neighbours_know_nothing_of_each_other(neighbour):
    u = dice(5, 9, IDS, 0, 8)
    a, b = {
        "id": (u[1:], u[:-1]),
        "step": (u, dice(5, 10, IDS, 0, 8)),
        "column": (u[:, 1:], u[:, :-1]),
        "view": (u, dice(5, 9, IDS, 1, 8)),
        "seed": (u, dice(6, 9, IDS, 0, 8)),
        "step against id": (u[1:], dice(5, 10, IDS, 0, 8)[:-1]),
    }[neighbour]
    a, b = a.flatten(), b.flatten()
    assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1]) < 5 / len(a) ** 0.5
    pairs = torch.bincount((a * 8).long() * 8 + (b * 8).long(), minlength=64)  # what correlation cannot see
    assert stats.chisquare(pairs.numpy()).pvalue > 1e-5


def test_a_row_depends_on_its_image_and_not_on_its_place():
    order = torch.randperm(N, generator=torch.Generator().manual_seed(0))
    assert torch.equal(dice(1, 2, IDS[order], 0, 4), dice(1, 2, IDS, 0, 4)[order])
    assert torch.equal(dice(1, 2, IDS[:1], 0, 4), dice(1, 2, IDS, 0, 4)[:1])


def test_the_words_do_not_change_places():
    rows = [
        dice(a, b, torch.tensor([c]), d, 4) for a, b, c, d in [(1, 2, 3, 0), (3, 2, 1, 0), (2, 1, 3, 0), (1, 3, 2, 0)]
    ]
    assert torch.cat(rows).unique(dim=0).shape[0] == 4


def test_more_columns_leave_the_first_ones_as_they_were():
    assert torch.equal(dice(1, 2, IDS, 0, 9)[:, :4], dice(1, 2, IDS, 0, 4))


def test_step_may_be_a_tensor_and_be_compiled():
    compiled = torch.compile(dice, fullgraph=True, backend="aot_eager")
    for step in (4, 5):
        expected = dice(1, step, IDS, 1, 4)
        assert torch.equal(dice(1, torch.tensor(step), IDS, 1, 4), expected)
        assert torch.equal(compiled(1, torch.tensor(step), IDS, 1, 4), expected)
