"""The codes: against SwAV's description as a plain loop, against POT, and under hostile scores."""

import threading

import numpy as np
import ot
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from concurl.objective.sinkhorn import sinkhorn, streaming_scalings


def cosines(n, k, seed=0, dim=16):
    """Scores as in training: cosines of n embeddings with k prototypes, float64 (n, k)."""
    generator = torch.Generator().manual_seed(seed)
    z, c = (normalize(torch.randn(m, dim, generator=generator, dtype=torch.float64), dim=1) for m in (n, k))
    return z @ c.t()


def swav(scores, epsilon, iterations):
    """SwAV's algorithm with nothing but exponentials and divisions: prototypes first, then samples."""
    Q = np.exp(np.asarray(scores, dtype=np.float64) / epsilon).T  # (K, B)
    K, B = Q.shape
    Q /= Q.sum()
    for _ in range(iterations):
        for k in range(K):
            Q[k] /= Q[k].sum() * K
        for i in range(B):
            Q[:, i] /= Q[:, i].sum() * B
    return (Q * B).T


def pot(scores, epsilon, balance=1.0):
    """The same problem (eq. 4) solved to the end by POT: transport of mass from images to clusters."""
    images, clusters = (np.full(n, 1 / n) for n in scores.shape)
    settings = {"numItermax": 20_000, "stopThr": 1e-12}
    if balance == 1:
        plan = ot.sinkhorn(images, clusters, -scores.numpy(), epsilon, method="sinkhorn_log", **settings)
    else:  # the images' masses are held, the clusters' only asked for
        strength = (np.inf, epsilon * balance / (1 - balance))
        plan = ot.unbalanced.sinkhorn_unbalanced(images, clusters, -scores.numpy(), epsilon, strength, **settings)
    return torch.from_numpy(plan * len(scores))


@pytest.mark.parametrize(("n", "k"), [(1, 1), (1, 5), (7, 3), (64, 10), (40, 100)])
@pytest.mark.parametrize("epsilon", [0.03, 0.05, 1.0])
@pytest.mark.parametrize("iterations", [1, 3])
def test_equals_swavs_loop(n, k, epsilon, iterations):
    scores = cosines(n, k).float()
    want = torch.from_numpy(swav(scores, epsilon, iterations))
    torch.testing.assert_close(sinkhorn(scores.double(), epsilon, iterations)[0], want, rtol=0, atol=1e-12)
    got = sinkhorn(scores, epsilon, iterations)[0]
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), want, rtol=0, atol=1e-6)


@pytest.mark.parametrize("epsilon", [0.02, 0.05, 0.5])
@pytest.mark.parametrize("balance", [1, 0.9, 0.3])
def test_equals_pot_at_convergence(epsilon, balance):
    scores = cosines(64, 10)
    q, u = sinkhorn(scores, epsilon, 3000, balance=balance)
    torch.testing.assert_close(q, pot(scores, epsilon, balance), rtol=0, atol=1e-6)
    streamed = streaming_scalings(lambda: scores.split(25), epsilon, balance=balance, tolerance=1e-9)
    torch.testing.assert_close(streamed, u, rtol=0, atol=1e-6)


def test_the_less_balance_the_more_the_clusters_differ():
    scores = cosines(200, 8) + torch.linspace(0, 0.5, 8)  # the last ones are near to all
    spread = [float(sinkhorn(scores, 0.05, 500, balance=b)[0].mean(0).std()) for b in (1, 0.9, 0.5, 0.2, 0)]
    assert spread[0] < 1e-6
    assert spread == sorted(spread)
    q, u = sinkhorn(scores, 0.05, 3, balance=0)
    torch.testing.assert_close(q, torch.softmax(scores / 0.05, dim=1))  # nobody sees anybody
    assert (u == 0).all()


@given(
    n=st.integers(1, 64),
    k=st.integers(1, 1000),
    epsilon=st.floats(0.001, 1),
    scale=st.floats(0, 1e4),
    kind=st.sampled_from(["noise", "extremes", "equal", "one cluster", "one row"]),
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32]),
    iterations=st.integers(1, 5),
)
@example(n=64, k=1000, epsilon=0.001, scale=1e4, kind="noise", dtype=torch.float16, iterations=3)
@example(n=1, k=1, epsilon=0.001, scale=1e4, kind="extremes", dtype=torch.bfloat16, iterations=3)
@example(n=64, k=10, epsilon=0.001, scale=1e4, kind="one cluster", dtype=torch.float32, iterations=3)
@settings(max_examples=150)
def test_always_finite_and_rows_sum_to_one(n, k, epsilon, scale, kind, dtype, iterations):
    generator = torch.Generator().manual_seed(n * 1000 + k)
    scores = (2 * torch.rand(n, k, generator=generator) - 1) * scale
    if kind == "extremes":
        scores = scores.sign() * scale
    elif kind == "equal":
        scores = torch.full((n, k), scale)
    elif kind == "one cluster":
        scores = torch.full((n, k), -scale)
        scores[:, 0] = scale
    elif kind == "one row":
        scores = torch.full((n, k), -scale)
        scores[0] = scale
    q, u = sinkhorn(scores.to(dtype), epsilon, iterations)
    assert q.shape == (n, k)
    assert u.shape == (k,)
    assert q.dtype == u.dtype == torch.float32
    assert q.isfinite().all()
    assert u.isfinite().all()
    assert (q >= 0).all()
    torch.testing.assert_close(q.sum(1), torch.ones(n), rtol=0, atol=1e-5)


@given(
    n=st.integers(1, 40),
    k=st.integers(1, 30),
    epsilon=st.floats(0.01, 1),
    iterations=st.integers(1, 20),
    seed=st.integers(0, 99),
)
@settings(max_examples=50)
def test_codes_are_the_softmax_with_the_returned_scalings(n, k, epsilon, iterations, seed):
    scores = cosines(n, k, seed)
    q, u = sinkhorn(scores, epsilon, iterations)
    torch.testing.assert_close(torch.softmax(scores / epsilon + u, dim=1), q, rtol=0, atol=1e-12)
    assert abs(float(u.mean())) < 1e-9


def test_codes_are_constants():
    scores = cosines(6, 3).float().requires_grad_()
    q, u = sinkhorn(scores, 0.05, 3)
    assert not q.requires_grad
    assert not u.requires_grad
    assert not streaming_scalings(lambda: [scores], 0.05).requires_grad


def test_tables_side_by_side_are_balanced_each_on_its_own():
    tables = torch.stack([cosines(9, 4, seed) for seed in (1, 2, 3)])
    q, u = sinkhorn(tables, 0.05, 3)
    for number, table in enumerate(tables):
        alone, scalings = sinkhorn(table, 0.05, 3)
        torch.testing.assert_close(q[number], alone, rtol=0, atol=1e-12)
        torch.testing.assert_close(u[number], scalings, rtol=0, atol=1e-12)


# ---- several processes -------------------------------------------------------------------------------------


def in_lockstep(parts, work):
    """work(part, log_reduce) in one thread per part, meeting at every reduction as processes do."""
    meet = threading.Barrier(len(parts), timeout=30)
    said, results = [None] * len(parts), [None] * len(parts)

    def process(rank):
        def log_reduce(x):
            said[rank] = x
            meet.wait()
            whole = torch.logsumexp(torch.stack(said), dim=0)
            meet.wait()
            return whole

        results[rank] = work(parts[rank], log_reduce)

    threads = [threading.Thread(target=process, args=(rank,)) for rank in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize("sizes", [[32, 32], [63, 1], [20, 30, 14]])
def test_processes_together_do_what_one_does(sizes):
    scores = cosines(64, 10)
    whole, u = sinkhorn(scores, 0.05, 3)
    parts = in_lockstep(scores.split(sizes), lambda part, reduce: sinkhorn(part, 0.05, 3, log_reduce=reduce))
    torch.testing.assert_close(torch.cat([q for q, _ in parts]), whole, rtol=0, atol=1e-12)
    for _, mine in parts:
        torch.testing.assert_close(mine, u, rtol=0, atol=1e-10)
    alone = torch.cat([sinkhorn(part, 0.05, 3)[0] for part in scores.split(sizes)])
    assert (alone - whole).abs().max() > 1e-3  # else the test above would show nothing


# ---- the whole set -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
@pytest.mark.parametrize("epsilon", [0.05, 0.3])
def test_streaming_equals_memory_whatever_the_chunks(chunk, epsilon):
    scores = cosines(300, 10)
    q, u = sinkhorn(scores, epsilon, 3000)
    got = streaming_scalings(lambda: scores.split(chunk), epsilon, tolerance=1e-10)
    torch.testing.assert_close(got, u, rtol=0, atol=1e-6)
    torch.testing.assert_close(torch.softmax(scores / epsilon + got, dim=1), q, rtol=0, atol=1e-6)


def test_streaming_makes_the_clusters_equally_large():
    scores = cosines(200, 8) + torch.linspace(0, 0.5, 8)  # without balance the last clusters take nearly all
    assert torch.softmax(scores / 0.05, dim=1).mean(0)[-4:].sum() > 0.8
    u = streaming_scalings(lambda: scores.split(64), 0.05)
    shares = torch.softmax(scores / 0.05 + u, dim=1).mean(0)
    torch.testing.assert_close(shares, torch.full((8,), 1 / 8, dtype=torch.float64), rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("epsilon", "sizes", "most"),
    [
        (0.05, range(91, 111, 2), 15),
        (0.05, range(40, 240, 20), 20),
        (0.01, range(40, 240, 20), 40),
        (0.005, range(20, 120, 10), 70),
        (0.05, [100] * 9 + [0], 25),  # nothing lies near the last prototype
        (0.01, [200] + [0] * 9, 50),
        (0.001, [100] * 5 + [0] * 5, 400),  # at first the shares of five are less than a float can hold
    ],
    ids=["nearly equal", "unequal", "unequal, hard", "harder", "an empty one", "all in one", "underflow"],
)
def test_streaming_balances_hard_codes_in_few_passes(epsilon, sizes, most):
    """Sinkhorn's own iteration takes 160 or 466 passes, or is off by up to 3% after a thousand; for "all in one" it takes 36."""
    draw = torch.Generator().manual_seed(0)
    centres = normalize(torch.randn(10, 64, generator=draw, dtype=torch.float64), dim=1)
    truth = torch.repeat_interleave(torch.arange(10), torch.tensor(list(sizes)))
    noise = torch.randn(len(truth), 64, generator=draw, dtype=torch.float64)
    scores = normalize(centres[truth] + 0.05 * noise, dim=1) @ centres.t()
    passes = []

    def chunks():
        passes.append(1)
        return scores.split(3)  # many parts: their roundings add up

    shares = torch.softmax(scores / epsilon + streaming_scalings(chunks, epsilon), dim=1).mean(0)
    torch.testing.assert_close(shares, torch.full((10,), 0.1, dtype=torch.float64), rtol=1e-5, atol=0)
    assert len(passes) <= most


def test_with_very_many_clusters_streaming_keeps_no_table_of_them(monkeypatch):
    scores = cosines(300, 10)
    want = streaming_scalings(lambda: scores.split(64), 0.3, tolerance=1e-10)
    monkeypatch.setattr("concurl.objective.sinkhorn.MOST_FOR_NEWTON", 9)
    monkeypatch.setattr("concurl.objective.sinkhorn._newton_step", None)
    torch.testing.assert_close(
        streaming_scalings(lambda: scores.split(64), 0.3, tolerance=1e-10), want, rtol=0, atol=1e-8
    )


def test_streaming_says_if_it_does_not_come_to_an_end(caplog):
    scores = cosines(200, 8) + torch.linspace(0, 0.5, 8)
    streaming_scalings(lambda: [scores], 0.05)
    assert not caplog.records
    streaming_scalings(lambda: [scores], 0.05, iterations=3)
    assert "after 3 passes" in caplog.text
    assert "--epsilon" in caplog.text


def test_streaming_reads_no_more_often_than_it_must():
    reads = []

    def chunks():
        reads.append(1)
        return [torch.zeros(6, 3)]  # balanced as it is

    torch.testing.assert_close(streaming_scalings(chunks, 0.05), torch.zeros(3, dtype=torch.float64))
    assert len(reads) == 1


def test_streaming_without_scores_is_refused():
    with pytest.raises(ValueError, match="no scores"):
        streaming_scalings(list, 0.05)


@pytest.mark.parametrize("epsilon", [0.05, 0.001, 0.0001])
@pytest.mark.parametrize("balance", [1.0, 0.5])
def test_where_sinkhorns_first_step_is_the_whole_way_it_is_taken(epsilon: float, balance: float) -> None:
    """Equal images: shortened steps would take hundreds of passes to what one of Sinkhorn's own reaches."""
    scores = torch.tensor([[1.0, 0.3, -0.5]], dtype=torch.float64).repeat(40, 1)
    passes: list[int] = []
    u = streaming_scalings(lambda: passes.append(1) or [scores], epsilon, balance=balance)
    want = -balance * scores[0] / epsilon
    torch.testing.assert_close(u, want - want.mean(), rtol=1e-9, atol=1e-9)
    assert len(passes) <= 3
