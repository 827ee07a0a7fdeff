"""Spherical k-means on the device, plain and balanced: for the prototypes' start and for the BYOL baseline's clusters."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from concurl.objective.sinkhorn import sinkhorn

MOST_HALVINGS = 8  # of epsilon, in balanced k-means
APART = 0.5  # the least distance of the two closest centres, relative to the start: closer ones are merging


@torch.no_grad()
def spherical_kmeans(
    x: Tensor, n_clusters: int, *, seed: int, restarts: int = 10, iterations: int = 100
) -> tuple[Tensor, Tensor]:
    """Unit centres (K, dim) and labels (N,) of the vectors x (N, dim), by cosine: the best of `restarts` runs.

    Computes in float32 where x is, on the CPU or a GPU. On one machine the same seed gives the same result.
    """
    x = normalize(x.float(), dim=1)
    if n_clusters > len(x):
        raise ValueError(f"n_clusters={n_clusters} is more than the {len(x)} points")
    generator = torch.Generator().manual_seed(seed)
    runs = (_lloyd(x, _plus_plus(x, n_clusters, generator), iterations) for _ in range(restarts))
    _, centres, labels = max(runs, key=lambda run: run[0])
    return centres, labels


@torch.no_grad()
def balanced_kmeans(x: Tensor, centres: Tensor, epsilon: float, balance: float = 1.0) -> tuple[Tensor, Tensor]:
    """k-means for clusters of equal size: unit centres (K, dim) and labels (N,) of the vectors x (N, dim).

    Starts from `centres` (K, dim) and alternates between the codes of eq. 4 and the means weighted by them. In plain k-means
    a wide cluster takes points from a narrow one, and the result depends on the start; balanced, most starts end alike.
    """
    x = normalize(x.float(), dim=1)
    for halvings in range(MOST_HALVINGS + 1):
        found, labels = _codes_and_means(x, centres, epsilon / 2**halvings, balance)
        # If epsilon is too large for the spread of x, a point's codes are nearly uniform, and the centres merge.
        if _closest(found) >= APART * _closest(centres):
            break
    return found, labels


def _codes_and_means(x: Tensor, centres: Tensor, epsilon: float, balance: float) -> tuple[Tensor, Tensor]:
    previous = _no_labels(x)
    for _ in range(100):
        q, _ = sinkhorn(x @ centres.t(), epsilon, 10, balance=balance)
        labels = q.argmax(1)
        if torch.equal(labels, previous):
            break
        previous, centres = labels, normalize(q.t() @ x, dim=1)
    return centres, labels


def _closest(centres: Tensor) -> float:
    """1 - cos of the two centres nearest to each other."""
    similarity = centres @ centres.t()
    return float(1 - similarity.fill_diagonal_(-1).max())


def _plus_plus(x: Tensor, n_clusters: int, generator: torch.Generator) -> Tensor:
    """k-means++: each point is the next centre with a probability in proportion to its squared distance from the nearest."""
    draws = torch.rand(n_clusters, generator=generator).tolist()
    chosen = [int(draws[0] * len(x))]
    distance = 1 - x @ x[chosen[0]]  # half the squared Euclidean distance of unit vectors
    for draw in draws[1:]:
        cumulative = distance.clamp_min(1e-12).double().cumsum(0)
        drawn = torch.searchsorted(cumulative, cumulative[-1:] * draw)
        chosen.append(min(int(drawn), len(x) - 1))
        distance = torch.minimum(distance, 1 - x @ x[chosen[-1]])
    return x[chosen]


def _lloyd(x: Tensor, centres: Tensor, iterations: int) -> tuple[float, Tensor, Tensor]:
    """(sum of the points' cosines with their centres, centres, labels)."""
    previous = _no_labels(x)
    for _ in range(iterations):
        similarity, labels = (x @ centres.t()).max(dim=1)
        if torch.equal(labels, previous):
            break
        previous = labels
        # A product with the one-hot labels, because index_add on a GPU adds in a different order each time.
        onehot = x.new_zeros(len(x), len(centres)).scatter_(1, labels[:, None], 1)  # (N, K)
        sums = onehot.t() @ x
        empty = onehot.sum(0) == 0
        if bool(empty.any()):  # empty clusters move to the points that are farthest from their centres
            sums[empty] = x[similarity.topk(int(empty.sum()), largest=False).indices]
        centres = normalize(sums, dim=1)
    similarity, labels = (x @ centres.t()).max(dim=1)
    return float(similarity.double().sum()), centres, labels


def _no_labels(x: Tensor) -> Tensor:
    return torch.full((len(x),), -1, device=x.device)
