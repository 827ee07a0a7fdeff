"""The dice against splitmix64 in plain Python, and against what a fair die must do."""

import pytest
import torch
from scipy import stats

from concurl.views.dice import dice

N = 20_000
IDS = torch.arange(N)


def splitmix64(state: int) -> int:
    mask = 2**64 - 1
    z = state & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def reference(seed: int, step: int, image: int, view: int, column: int) -> float:
    state = splitmix64(image)
    for word in (seed, step, view):
        state = splitmix64(state + word)
    return (splitmix64((state + column + 1) * 0x9E3779B97F4A7C15) >> 40) / 2**24


def test_the_plain_splitmix64_gives_the_published_numbers():
    # its first three outputs for seed 0, as in the xoshiro authors' splitmix64.c
    golden = 0x9E3779B97F4A7C15
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [splitmix64(golden * k) for k in (1, 2, 3)] == published


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


def test_more_columns_leave_the_first_ones_as_they_were():
    assert torch.equal(dice(1, 2, IDS, 0, 9)[:, :4], dice(1, 2, IDS, 0, 4))


def test_step_may_be_a_tensor_and_be_compiled():
    compiled = torch.compile(dice, fullgraph=True, backend="aot_eager")
    for step in (4, 5):
        expected = dice(1, step, IDS, 1, 4)
        assert torch.equal(dice(1, torch.tensor(step), IDS, 1, 4), expected)
        assert torch.equal(compiled(1, torch.tensor(step), IDS, 1, 4), expected)
