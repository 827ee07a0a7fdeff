"""Where each image is on the two-dimensional map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concurl.cores import usable_cores
from concurl.progress import Stages, silent
from concurl.training.interrupt import SignalWatch

MAX_POINTS = 10_000
SEED = 0
_EARLY, _LATE = 250, 500  # openTSNE's own numbers of iterations
_FEWEST_FOR_TSNE = 10
_FEWEST_FOR_THREADS = 2_000


@dataclass(frozen=True)
class Layout:
    """Some rows, their places, and how these were found, in words."""

    rows: NDArray[np.int64]  # (P,), in random order, so that no cluster is drawn on top of another
    xy: NDArray[np.float64]  # (P, 2) in [0, 1], y growing downwards
    method: str


def lay_out(z: NDArray[np.float32], progress: Stages = silent) -> Layout:
    """Places by t-SNE of the embeddings z (N, d), or by their principal axes if openTSNE is not installed."""
    rows = np.random.default_rng(SEED).permutation(len(z))[:MAX_POINTS]
    points = np.nan_to_num(z[rows].astype(np.float64), posinf=0.0, neginf=0.0)
    points -= points.mean(axis=0)
    xy, method = _tsne(points, progress) if len(rows) >= _FEWEST_FOR_TSNE else (None, "")
    if xy is None:
        xy = _principal(points, 2)
        method = method or "the two principal axes, since so few images leave nothing for t-SNE to do"
    xy = xy - xy.min(axis=0)
    span = xy.max()
    return Layout(rows, (xy + (span - xy.max(axis=0)) / 2) / span if span > 0 else np.full_like(xy, 0.5), method)


def _tsne(points: NDArray[np.float64], progress: Stages) -> tuple[NDArray[np.float64] | None, str]:
    try:
        from openTSNE import TSNE
    except ImportError:
        return None, "the two principal axes (pip install 'concurl[report]' for a clearer map, by t-SNE)"
    if not np.ptp(points, axis=0).any():
        return None, "the two principal axes, because all embeddings are equal"
    perplexity = min(30.0, (len(points) - 1) / 3)
    done = 0

    def tick(iteration: int, error: float, embedding: Any) -> bool:
        nonlocal done
        done += 25
        progress("map", min(done, _EARLY + _LATE), _EARLY + _LATE)
        signals.stop_if_asked()
        return False  # True would stop the optimisation

    tsne = TSNE(
        perplexity=perplexity,
        early_exaggeration_iter=_EARLY,
        n_iter=_LATE,
        random_state=SEED,
        initialization="pca",
        n_jobs=usable_cores() if len(points) >= _FEWEST_FOR_THREADS else 1,
        callbacks=tick,
        callbacks_every_iters=25,
    )
    # 50 axes are enough for neighbourhoods of cluster embeddings, and make the search several times faster
    points = _principal(points, min(50, *points.shape))
    with SignalWatch() as signals:  # in the middle of openTSNE's compiled code an exception is a crash
        fitted = tsne.fit(points)
    signals.stop_if_asked()
    return np.asarray(fitted, dtype=np.float64), f"t-SNE, perplexity {perplexity:.3g}, seed {SEED}"


def _principal(points: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    _, vectors = np.linalg.eigh(points.T @ points)
    axes = vectors[:, ::-1][:, :k]
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])  # eigh leaves the signs open
    return np.pad(points @ axes, ((0, 0), (0, max(0, k - axes.shape[1]))))
