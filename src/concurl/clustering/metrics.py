"""ACC, NMI and ARI as the paper's appendix defines them, and the matching of clusters to classes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Labels = NDArray[np.int64]


def contingency(truth: ArrayLike, clusters: ArrayLike) -> NDArray[np.int64]:
    """How many images of each class (rows) are in each cluster (columns); only values that occur have a row or column."""
    t, c = np.asarray(truth), np.asarray(clusters)
    if t.ndim != 1 or t.shape != c.shape or not len(t):
        raise ValueError(
            f"labels of shape {t.shape} and clusters of shape {c.shape}: two equal, non-empty lists are needed"
        )
    _, rows = np.unique(t, return_inverse=True)
    _, columns = np.unique(c, return_inverse=True)
    table = np.zeros((rows.max() + 1, columns.max() + 1), dtype=np.int64)
    np.add.at(table, (rows, columns), 1)
    return table


def accuracy(truth: ArrayLike, clusters: ArrayLike) -> float:
    """ACC: the share of images in the right cluster under the best one-to-one matching of clusters to classes.

    If there are more clusters than classes, or fewer, the rest stay unmatched, and their images count as wrong.
    """
    table = contingency(truth, clusters)
    return float(table[_best_pairs(table)].sum() / table.sum())


def chance(truth: Labels, clusters: ArrayLike) -> float:
    """The ACC of the same clusters with the labels shuffled: if there are few labels, more than one would think."""
    rng = np.random.default_rng(0)
    return float(np.mean([accuracy(rng.permutation(truth), clusters) for _ in range(5)]))


def match_clusters(truth: Labels, clusters: Labels) -> dict[int, int]:
    """cluster -> class under the matching that ACC uses; unmatched clusters are absent."""
    rows, columns = _best_pairs(contingency(truth, clusters))
    classes, names = np.unique(truth), np.unique(clusters)
    return {int(names[column]): int(classes[row]) for row, column in zip(rows, columns, strict=True)}


def _best_pairs(table: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(rows, columns) of the matching that counts the most images."""
    from scipy.optimize import linear_sum_assignment  # imported here, as it takes half a second

    rows, columns = linear_sum_assignment(table, maximize=True)
    return rows, columns


def nmi(a: ArrayLike, b: ArrayLike) -> float:
    """MI(a, b) / sqrt(H(a) H(b)), as Strehl and Ghosh define it (scikit-learn's default divides by the arithmetic mean)."""
    joint = contingency(a, b) / np.asarray(a).size
    row, column = joint.sum(1), joint.sum(0)
    if min(joint.shape) == 1:  # a single cluster agrees only with another single one
        return float(joint.shape == (1, 1))
    scale = np.sqrt(_entropy(row) * _entropy(column))
    filled = joint > 0
    mutual = np.sum(joint[filled] * np.log(joint[filled] / np.outer(row, column)[filled]))
    return float(np.clip(mutual / scale, 0.0, 1.0))


def ari(a: ArrayLike, b: ArrayLike) -> float:
    """Adjusted Rand index: the share of pairs on which a and b agree, corrected for chance."""
    table = contingency(a, b)

    def pairs(counts: NDArray[np.int64]) -> int:
        return sum(int(n) * (int(n) - 1) // 2 for n in counts.ravel())  # Python's integers: no overflow at 10^10 pairs

    both, rows, columns = pairs(table), pairs(table.sum(1)), pairs(table.sum(0))
    total = int(table.sum()) * (int(table.sum()) - 1) // 2
    expected = rows * columns / total if total else 0.0
    largest = (rows + columns) / 2
    return 1.0 if largest == expected else float((both - expected) / (largest - expected))


def scores(truth: ArrayLike, clusters: ArrayLike) -> dict[str, float]:
    """ACC, NMI and ARI, by the paper's names."""
    return {"acc": accuracy(truth, clusters), "nmi": nmi(truth, clusters), "ari": ari(truth, clusters)}


def _entropy(p: NDArray[np.float64]) -> float:
    p = p[p > 0]
    return float(-np.sum(p * np.log(p)))
