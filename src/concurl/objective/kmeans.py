"""Spherical k-means on the device, plain and balanced: sets the prototypes, and clusters the BYOL baseline's embeddings."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from concurl.objective.sinkhorn import sinkhorn

MOST_HALVINGS = 8  # of epsilon, in balanced k-means
APART = 0.5  # of the distance that plain k-means leaves between the closest centres: nearer ones are becoming one


@torch.no_grad()
def spherical_kmeans(
    x: Tensor, n_clusters: int, *, seed: int, restarts: int = 10, iterations: int = 100
) -> tuple[Tensor, Tensor]:
    """Unit centres (K, dim) and labels (N,) of unit vectors x (N, dim), by cosine; the best of `restarts` runs.

    Works in float32 on the CPU or a GPU; on one machine the same seed gives the same result.
    """
    x = normalize(x.float(), dim=1)
    if n_clusters > len(x):
        raise ValueError(f"n_clusters={n_clusters} is more than the {len(x)} points")
    generator = torch.Generator().manual_seed(seed)
    best: tuple[float, Tensor, Tensor] | None = None
    for _ in range(restarts):
        centres = _plus_plus(x, n_clusters, generator)
        objective, centres, labels = _lloyd(x, centres, iterations)
        if best is None or objective > best[0]:
            best = objective, centres, labels
    assert best is not None
    return best[1], best[2]


@torch.no_grad()
def balanced_kmeans(x: Tensor, centres: Tensor, epsilon: float, balance: float = 1.0) -> tuple[Tensor, Tensor]:
    """k-means for clusters of equal size: unit centres (K, dim) and labels (N,) of unit vectors x (N, dim).

    The codes of eq. 4 and the means they weigh, in turns, from `centres` (K, dim) on. Plain k-means lets a wide cluster take
    what belongs to a narrow one, and ends where its start leads; balanced, many starts lead to one end.
    """
    x = normalize(x.float(), dim=1)
    for halvings in range(MOST_HALVINGS + 1):
        found, labels = _codes_and_means(x, centres, epsilon / 2**halvings, balance)
        # Where x is loose for this epsilon, a point's codes are nearly alike and centres run together.
        if _closest(found) >= APART * _closest(centres):
            break
    return found, labels


def _codes_and_means(x: Tensor, centres: Tensor, epsilon: float, balance: float) -> tuple[Tensor, Tensor]:
    previous: Tensor | None = None
    for _ in range(100):
        q, _ = sinkhorn(x @ centres.t(), epsilon, 10, balance=balance)
        labels = q.argmax(1)
        if previous is not None and bool((labels == previous).all()):
            break
        previous, centres = labels, normalize(q.t() @ x, dim=1)
    return centres, labels


def _closest(centres: Tensor) -> float:
    """1 - cos of the two centres nearest to each other."""
    similarity = centres @ centres.t()
    return float(1 - similarity.fill_diagonal_(-1).max())


def _plus_plus(x: Tensor, n_clusters: int, generator: torch.Generator) -> Tensor:
    """k-means++ start: each next centre with probability proportional to its squared distance to the nearest."""
    draws = torch.rand(n_clusters, generator=generator).tolist()
    chosen = [int(draws[0] * len(x))]
    distance = 1 - x @ x[chosen[0]]  # half the squared Euclidean distance of unit vectors
    for draw in draws[1:]:
        cumulative = distance.clamp_min(1e-12).double().cumsum(0)
        nearest = torch.searchsorted(cumulative, cumulative[-1:] * draw)
        chosen.append(min(int(nearest), len(x) - 1))
        distance = torch.minimum(distance, 1 - x @ x[chosen[-1]])
    return x[chosen]


def _lloyd(x: Tensor, centres: Tensor, iterations: int) -> tuple[float, Tensor, Tensor]:
    n_clusters = len(centres)
    previous: Tensor | None = None
    for _ in range(iterations):
        similarity, labels = (x @ centres.t()).max(dim=1)
        if previous is not None and bool((labels == previous).all()):
            break
        previous = labels
        # A product with the one-hot labels instead of index_add: the same sum, in a fixed order on a GPU too.
        onehot = torch.nn.functional.one_hot(labels, n_clusters).to(x.dtype)  # (N, K)
        sums = onehot.t() @ x
        empty = onehot.sum(0) == 0
        if bool(empty.any()):  # an empty cluster takes over the worst-served points
            sums[empty] = x[similarity.topk(int(empty.sum()), largest=False).indices]
        centres = normalize(sums, dim=1)
    similarity, labels = (x @ centres.t()).max(dim=1)
    return float(similarity.double().sum()), centres, labels
