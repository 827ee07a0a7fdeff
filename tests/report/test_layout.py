"""The map's places: the same each time, neighbours stay neighbours, and there is one without openTSNE."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest

from concurl.report import layout
from concurl.report.layout import lay_out
from concurl.training.interrupt import Terminated, termination_as_exception


@pytest.fixture(scope="module")
def groups() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    kind = np.arange(150) % 3
    z = np.eye(3)[kind] @ rng.normal(size=(3, 12)) * 3 + rng.normal(size=(150, 12)) * 0.2
    return (z / np.linalg.norm(z, axis=1, keepdims=True)).astype(np.float32), kind


def purity(xy: np.ndarray, kind: np.ndarray) -> float:
    distances = np.linalg.norm(xy[:, None] - xy[None], axis=-1) + np.eye(len(xy)) * 9
    return float((kind[distances.argmin(axis=1)] == kind).mean())


def test_tsne_keeps_neighbours_and_repeats_itself(groups: tuple[np.ndarray, np.ndarray]) -> None:
    pytest.importorskip("openTSNE")
    z, kind = groups
    ticks: list[tuple[int, int]] = []
    one, two = lay_out(z, lambda stage, done, total: ticks.append((done, total))), lay_out(z)
    assert "t-SNE" in one.method
    np.testing.assert_array_equal(one.xy, two.xy)
    assert sorted(one.rows) == list(range(150))
    assert purity(one.xy, kind[one.rows]) == 1.0
    assert one.xy.min() == 0.0
    assert one.xy.max() == 1.0
    assert ticks[-1] == (750, 750)
    assert len(ticks) == 30


def test_without_opentsne_the_principal_axes_match_svd(
    groups: tuple[np.ndarray, np.ndarray], without_tsne: None
) -> None:
    z, _ = groups
    found = lay_out(z)
    assert "principal axes" in found.method
    assert "concurl[report]" in found.method
    centred = z[found.rows].astype(np.float64) - z.astype(np.float64).mean(axis=0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    for axis in range(2):
        assert abs(np.corrcoef(u[:, axis] * s[axis], found.xy[:, axis])[0, 1]) == pytest.approx(1)


def test_many_images_are_drawn_at_random(monkeypatch: pytest.MonkeyPatch, without_tsne: None) -> None:
    monkeypatch.setattr(layout, "MAX_POINTS", 50)
    z = np.random.default_rng(0).normal(size=(400, 4)).astype(np.float32)
    found = lay_out(z)
    assert len(set(found.rows.tolist())) == 50
    assert found.rows.max() > 300
    assert not np.all(np.diff(found.rows) > 0)


@pytest.mark.parametrize(
    "z",
    [
        np.ones((1, 4)),
        np.ones((30, 4)),
        np.eye(4),
        np.full((20, 3), np.nan),
        np.where(np.eye(30) > 0, np.inf, 0.1),
        np.ones((12, 1)),
    ],
)
def test_degenerate_embeddings_still_have_finite_places(z: np.ndarray) -> None:
    found = lay_out(z.astype(np.float32))
    assert found.xy.shape == (len(z), 2)
    assert np.isfinite(found.xy).all()
    assert found.xy.min() >= 0
    assert found.xy.max() <= 1


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
def test_a_signal_stops_the_map_between_its_rounds(
    groups: tuple[np.ndarray, np.ndarray], number: int, kind: type[BaseException]
) -> None:
    """Never within: an exception in the middle of openTSNE's compiled code is a crash."""
    pytest.importorskip("openTSNE")
    z, _ = groups
    seen: list[int] = []

    def ask(stage: str, done: int, total: int) -> None:
        if not seen:
            threading.Timer(0.02, os.kill, (os.getpid(), number)).start()  # while the next round is computed
        seen.append(done)

    with termination_as_exception(), pytest.raises(kind):
        lay_out(np.repeat(z, 10, axis=0), ask)
    assert 1 < len(seen) < 30, "it went on to the end of a round, and not of all"
