"""Square tables of shares: where the ensemble disagrees, and how clusters match given classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from concurl.clustering.metrics import chance, match_clusters, scores
from concurl.errors import UserError
from concurl.report.facts import RunFacts, shown

MAX_SIDE = 30  # a larger table cannot be read


@dataclass(frozen=True)
class Matrix:
    """The titles of rows and columns, and the cells; `counts` only where the shares are of a row's images.

    `clusters` are those of the rows; those of the columns are the same unless `counts` says that these are classes.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    shares: NDArray[np.float64]
    clusters: tuple[int, ...]
    counts: NDArray[np.int64] | None = None
    rows_left_out: int = 0
    columns_left_out: int = 0


@dataclass(frozen=True)
class Pair:
    """Two clusters that the ensemble mixes up; the shares are of member votes."""

    one: int
    other: int
    there: float  # of the votes on the images of `one`, those for `other`; never less than `back`
    back: float


@dataclass(frozen=True)
class Matched:
    """Clusters against classes, with matched pairs on the diagonal."""

    matrix: Matrix
    scores: dict[str, float]
    chance: float  # see metrics.py
    unlabelled: int
    left_over: int  # clusters without a class of their own
    without_cluster: int  # classes without a cluster of their own


def votes(facts: RunFacts) -> NDArray[np.float64] | None:
    """The shares of member votes (K, K), or None where the run has not kept them."""
    try:
        shares = np.array(facts.summary.get("ensemble_confusion"), dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return np.nan_to_num(shares) if shares.shape == (facts.n_clusters,) * 2 else None


def disagreement(facts: RunFacts, shares: NDArray[np.float64]) -> Matrix:
    """The votes as a table of those clusters that are mixed up most: with one other, as `mixed_up` measures it."""
    both = shares + shares.T
    np.fill_diagonal(both, 0)
    kept = np.sort(np.argsort(-both.max(axis=1), kind="stable")[:MAX_SIDE])
    names = tuple(facts.names[i] for i in kept)
    rest = len(shares) - len(kept)
    return Matrix(names, names, shares[np.ix_(kept, kept)], tuple(kept.tolist()), None, rest, rest)


def mixed_up(shares: NDArray[np.float64], most: int = 6, least: float = 0.01) -> list[Pair]:
    """The pairs of clusters with the most votes for each other: at least `least`, as the mean of both directions."""
    both = (shares + shares.T) / 2
    one, other = np.triu_indices(len(shares), 1)
    order = np.argsort(-both[one, other], kind="stable")[:most]
    pairs = [(int(one[i]), int(other[i])) for i in order if both[one[i], other[i]] >= least]
    ordered = [(i, j) if shares[i, j] >= shares[j, i] else (j, i) for i, j in pairs]
    return [Pair(i, j, float(shares[i, j]), float(shares[j, i])) for i, j in ordered]


def mixed_with(shares: NDArray[np.float64], most: int = 2, least: float = 0.05) -> list[list[tuple[int, float]]]:
    """For each cluster the few others that get the most of the votes on its images, with their shares: each at least `least`."""
    found = []
    for i, row in enumerate(shares):
        order = [int(j) for j in np.argsort(-row, kind="stable") if j != i]
        found.append([(j, float(row[j])) for j in order[:most] if row[j] >= least])
    return found


def matched(facts: RunFacts, labels: NDArray[np.int64], classes: Sequence[str] | None) -> Matched:
    """The confusion matrix of clusters (rows) and classes (columns) under the matching with the most hits."""
    if labels.shape != facts.cluster.shape:
        raise UserError(f"labels of shape {labels.shape} for {len(facts.cluster)} images; give one per image")
    known = labels >= 0
    if not known.any():
        raise UserError("labels: none is 0 or more; leave labels out where there are none")
    n_classes = max(int(labels.max()) + 1, len(classes or ()))
    counts = np.zeros((facts.n_clusters, n_classes), dtype=np.int64)
    np.add.at(counts, (facts.cluster[known], labels[known]), 1)
    # matched pairs form the diagonal, best first; what has no partner comes last
    pairs = sorted(match_clusters(labels[known], facts.cluster[known]).items(), key=lambda pair: -counts[pair])
    row_order = [i for i, _ in pairs]
    row_order += sorted(set(range(facts.n_clusters)) - set(row_order))
    column_order = [j for _, j in pairs]
    column_order += sorted(set(range(n_classes)) - set(column_order))
    named = [shown(classes[j]) if classes and j < len(classes) else f"Class {j}" for j in range(n_classes)]
    rows, columns = row_order[:MAX_SIDE], column_order[:MAX_SIDE]
    totals = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, totals, out=np.zeros(counts.shape), where=totals > 0)
    table = Matrix(
        tuple(facts.names[i] for i in rows),
        tuple(named[j] for j in columns),
        shares[np.ix_(rows, columns)],
        tuple(rows),
        counts[np.ix_(rows, columns)],
        len(row_order) - len(rows),
        len(column_order) - len(columns),
    )
    truth, clusters = labels[known], facts.cluster[known]
    return Matched(
        table,
        scores(truth, clusters),
        chance(truth, clusters),
        int((~known).sum()),
        left_over=len(row_order) - len(pairs),
        without_cluster=len(np.unique(truth)) - len(pairs),
    )
