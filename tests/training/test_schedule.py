"""What changes over the steps: against the curves' formulas, their ends and their shapes."""

import math

import pytest
import torch

from concurl.training.schedule import Schedule, Settings

TOTAL = 200


def rates(config, total=TOTAL):
    return [Schedule(config, total).at(step).learning_rate for step in range(total + 1)]


def test_constant_is_constant(tiny):
    assert rates(tiny(learning_rate=0.3)) == [0.3] * (TOTAL + 1)


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_warm_up_rises_linearly_from_0_to_the_highest(tiny, schedule):
    found = rates(tiny(learning_rate=0.4, warmup=0.1, schedule=schedule))
    assert found[:21] == pytest.approx([0.4 * step / 20 for step in range(21)])
    assert max(found) == pytest.approx(0.4)


@pytest.mark.parametrize("warmup", [0.0, 0.1, 0.5])
def test_cosine_falls_to_0(tiny, warmup):
    found = rates(tiny(learning_rate=0.4, warmup=warmup, schedule="cosine"))
    first = round(warmup * TOTAL)
    want = [0.2 * (1 + math.cos(math.pi * (step - first) / (TOTAL - first))) for step in range(first, TOTAL + 1)]
    assert found[first:] == pytest.approx(want, abs=1e-12)
    assert found[first] == pytest.approx(0.4)
    assert found[(first + TOTAL) // 2] == pytest.approx(0.2, abs=0.004)
    assert found[-1] == pytest.approx(0, abs=1e-12)
    assert all(a > b for a, b in zip(found[first:], found[first + 1 :], strict=False))


def test_warm_up_all_the_way(tiny):
    found = rates(tiny(learning_rate=1.0, warmup=1.0, schedule="cosine"), 10)
    assert found == pytest.approx([step / 10 for step in range(11)])


def test_a_warm_up_of_one_step_is_none(tiny):
    """It would be a step at a rate of 0: in a run of few steps the only one, or the only one of clustering."""
    found = [rates(tiny(learning_rate=1.0, warmup=share))[0] for share in (0.004, 0.005, 0.01)]
    assert found == [1, 1, 0]
    short = tiny(learning_rate=1.0, warmup=0.04, schedule="cosine", cluster_start=0.85, cluster_lr=0.1)
    assert [Schedule(short, total).at(total - 1).learning_rate for total in (1, 4)] == [1, 0.1]


def test_tau_b_rises_by_byols_cosine(tiny):
    schedule = Schedule(tiny(tau_b=0.98, tau_b_end=1.0), TOTAL)
    found = [schedule.at(step).tau_b for step in range(TOTAL + 1)]
    want = [1 - (1 - 0.98) * (math.cos(math.pi * step / TOTAL) + 1) / 2 for step in range(TOTAL + 1)]  # Grill et al.
    assert found == pytest.approx(want, abs=1e-12)
    assert found[0] == pytest.approx(0.98)
    assert found[-1] == pytest.approx(1)
    other = Schedule(tiny(tau_b=0.9, tau_b_end=0.95), TOTAL)
    assert (other.at(0).tau_b, other.at(TOTAL).tau_b) == pytest.approx((0.9, 0.95))


def test_tau_b_without_an_end_stays(tiny):
    assert {Schedule(tiny(tau_b=0.99), TOTAL).at(step).tau_b for step in range(TOTAL)} == {0.99}


@pytest.mark.parametrize("start", [0.0, 0.25, 0.995])
def test_clusters_start_when_told(tiny, start):
    schedule = Schedule(tiny(cluster_start=start, alpha=0.7, beta=0.5, gamma=0.3), TOTAL)
    first = int(start * TOTAL)
    assert schedule.cluster_step == first
    for step in range(TOTAL):
        now = schedule.at(step)
        assert now.alpha == 0.7
        assert (now.beta, now.gamma) == ((0, 0) if step < first else (0.5, 0.3))


@pytest.mark.parametrize(("total", "first"), [(1, 0), (2, 1), (3, 2), (4, 3), (10, 8), (100, 85)])
def test_a_short_run_clusters_in_its_last_step_at_least(tiny, total, first):
    schedule = Schedule(tiny(cluster_start=0.85), total)
    assert schedule.cluster_step == first
    assert schedule.at(total - 1)[3:5] == (1, 1)
    assert Schedule(tiny(cluster_start=1.0), total).cluster_step == total - 1
    assert Schedule(tiny(cluster_start=0.85, alpha=0.0), total).cluster_step == 0


def test_cluster_weights_ramp_linearly(tiny):
    schedule = Schedule(tiny(cluster_start=0.25, cluster_ramp=0.1, beta=0.5, gamma=0.3), TOTAL)
    found = [(now.beta, now.gamma) for now in map(schedule.at, range(TOTAL))]
    assert found[:50] == [(0, 0)] * 50
    for since in range(20):
        assert found[50 + since] == pytest.approx((0.5 * (since + 1) / 20, 0.3 * (since + 1) / 20))
    assert found[69:] == [(0.5, 0.3)] * (TOTAL - 69)


def test_a_ramp_shorter_than_a_step_is_none(tiny):
    found = [Schedule(tiny(cluster_start=0.5, cluster_ramp=share), TOTAL).at(100).beta for share in (0.004, 0.01)]
    assert found == [1, 0.5]


def test_with_a_cluster_lr_both_parts_have_a_whole_course_of_their_own(tiny):
    options = {"learning_rate": 0.4, "warmup": 0.1, "schedule": "cosine", "tau_b": 0.9, "tau_b_end": 1.0}
    schedule = Schedule(tiny(cluster_start=0.75, cluster_lr=0.3, **options), TOTAL)
    before, after = Schedule(tiny(**options), 150), Schedule(tiny(**options), 50)
    for step in range(150):
        assert schedule.at(step)[:2] == pytest.approx(before.at(step)[:2], abs=1e-12)
    for step in range(50):
        rate, tau_b = after.at(step)[:2]
        assert schedule.at(150 + step)[:2] == pytest.approx((0.3 * rate, tau_b), abs=1e-12)


@pytest.mark.parametrize("options", [{"beta": 0.0, "gamma": 0.0}, {"alpha": 0.0}])
def test_where_clustering_has_no_part_of_its_own_there_is_one_course(tiny, options):
    assert rates(tiny(warmup=0.1, schedule="cosine", cluster_start=0.75, cluster_lr=0.3, **options)) == rates(
        tiny(warmup=0.1, schedule="cosine")
    )


def test_byol_alone_never_starts_clusters(tiny):
    schedule = Schedule(tiny(beta=0.0, gamma=0.0), TOTAL)
    assert schedule.cluster_step == TOTAL
    assert schedule.at(TOTAL - 1)[3:5] == (0, 0)


def test_all_images_are_heard_for_a_fifth_of_the_time_with_clusters(tiny):
    schedule = Schedule(tiny(cluster_start=0.5, min_sureness=0.9), TOTAL)
    found = [schedule.at(step).min_sureness for step in range(TOTAL)]
    assert found == [0.0] * (TOTAL // 2 + TOTAL // 10) + [0.9] * (TOTAL // 2 - TOTAL // 10)


@pytest.mark.parametrize("span", [(0, TOTAL), (37, 61)])
def test_table_is_at_row_by_row(tiny, span):
    config = tiny(warmup=0.1, schedule="cosine", tau_b_end=1.0, cluster_start=0.3, cluster_ramp=0.2, learning_rate=0.1)
    schedule = Schedule(config.replace(min_sureness=0.5), TOTAL)
    table = schedule.table(*span)
    assert table.dtype == torch.float32
    want = torch.tensor([list(schedule.at(step)) for step in range(*span)], dtype=torch.float64)
    torch.testing.assert_close(table.double(), want, rtol=1e-6, atol=1e-9)
    assert Settings(*table[0])._fields == ("learning_rate", "tau_b", "alpha", "beta", "gamma", "min_sureness")
    assert float(Settings(*table[5]).tau_b) == pytest.approx(schedule.at(span[0] + 5).tau_b)
