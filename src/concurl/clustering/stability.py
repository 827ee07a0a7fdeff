"""How many clusters? Groups that are there come out again when other images are looked at; groups that are not, do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from concurl.clustering.metrics import ari
from concurl.objective.kmeans import spherical_kmeans

HALVES = 10
RESTARTS = 20
CLOSE = 0.02  # stabilities that lie no further apart are taken for equal
NEARLY = 0.9  # of the highest stability: what a top must have


def stabilities(x: Tensor, counts: Sequence[int], *, seed: int = 0) -> Iterator[tuple[int, float]]:
    """(K, stability) for each K of `counts`: x (N, dim) clustered by cosine on random halves, which label all of x.

    The stability is the mean ARI over the pairs of halves: 1 where all find the same groups, 0 where they share no more
    than chance. The halves are the same for every K.
    """
    generator = torch.Generator().manual_seed(seed)
    halves = [torch.randperm(len(x), generator=generator)[: len(x) // 2].to(x.device) for _ in range(HALVES)]
    for k in counts:
        partitions = []
        for number, half in enumerate(halves):
            centres, _ = spherical_kmeans(x[half], k, seed=seed + number, restarts=RESTARTS)
            partitions.append((x @ centres.t()).argmax(1).cpu().numpy())
        yield k, float(np.mean([ari(a, b) for a, b in combinations(partitions, 2)]))


def standing_out(found: dict[int, float]) -> list[int]:
    """The K whose groups stand out from those of K - 1 and K + 1, from coarse to fine.

    Few groups are nearly always stable (animals and vehicles), so the best of all says little: each top counts that is
    nearly as high. Of equals the largest K: two groups of one kind are easily joined, a mixed one is not easily parted.
    """
    least = NEARLY * max(found.values())
    tops = set()
    for k, stability in found.items():
        if stability >= max(least, found.get(k - 1, 0.0), found.get(k + 1, 0.0)):
            while k + 1 in found and found[k + 1] >= stability - CLOSE:
                k += 1
            tops.add(k)
    return sorted(tops)
