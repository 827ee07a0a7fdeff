"""How many clusters? Real groups are found again when one looks at other images; others are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import torch
from scipy.signal import find_peaks
from torch import Tensor

from concurl.clustering.metrics import ari
from concurl.objective.kmeans import spherical_kmeans

HALVES = 10
RESTARTS = 20
CLOSE = 0.02  # stabilities that differ by no more count as equal
NEARLY = 0.9  # of the highest stability: what a peak must reach


def stabilities(x: Tensor, counts: Sequence[int], *, seed: int = 0) -> Iterator[tuple[int, float]]:
    """(K, stability) for each K of `counts`: vectors x (N, dim) are clustered by cosine on random halves; each labels all x.

    The stability is the mean ARI over all pairs of halves: 1 if they find the same groups, 0 if they agree no more than by
    chance. The halves are the same for every K.
    """
    generator = torch.Generator().manual_seed(seed)
    halves = [torch.randperm(len(x), generator=generator)[: len(x) // 2].to(x.device) for _ in range(HALVES)]
    for k in counts:
        partitions = []
        for number, half in enumerate(halves):
            centres, _ = spherical_kmeans(x[half], k, seed=seed + number, restarts=RESTARTS)
            partitions.append((x @ centres.t()).argmax(1).cpu().numpy())
        # Of copies, or of fewer different images than K, every half makes the same groups, and fewer than K.
        real = any(len(np.unique(partition)) == k for partition in partitions)
        yield k, float(np.mean([ari(a, b) for a, b in combinations(partitions, 2)])) if real else 0.0


def standing_out(found: dict[int, float]) -> list[int]:
    """The K at which the stability has a peak that is no ripple, from coarse to fine; `found` has every K from 2 on.

    A few coarse groups (animals and vehicles) are nearly always stable, so the highest stability says little: every peak
    counts that is nearly as high. Of equals take the largest K: two groups of one kind are easy to join, but a mixed group
    is hard to divide.
    """
    counts = list(found)
    beyond = -1.0  # the first and the last K may be peaks as well
    curve = np.array([beyond, *found.values(), beyond])
    # Prominence: how far one must go down from a peak before the curve rises above it.
    tops, _ = find_peaks(curve, height=NEARLY * max(found.values()), prominence=CLOSE)
    peaks = set()
    for k in (counts[top - 1] for top in tops):
        stability = found[k]
        while found.get(k + 1, beyond) >= stability - CLOSE:
            k += 1
        peaks.add(k)
    return sorted(peaks)
