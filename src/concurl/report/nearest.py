"""Which other cluster each image lies nearest to: where it would probably go if it is in the wrong one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from concurl.report.facts import RunFacts

UNKNOWN = -1


def next_clusters(facts: RunFacts, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each of these rows the cluster, other than its own, whose mean embedding points most nearly its way.

    UNKNOWN without embeddings, for an embedding that is not a number, and where no other cluster has an image.
    """
    if facts.embeddings is None:
        return np.full(len(rows), UNKNOWN)
    means = np.full((facts.n_clusters, facts.embeddings.shape[1]), np.nan)
    for cluster, members in enumerate(facts.members):
        if len(members):
            means[cluster] = facts.embeddings[members].mean(axis=0, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        near = facts.embeddings[rows].astype(np.float64) @ means.T
    near[np.arange(len(rows)), facts.cluster[rows]] = np.nan
    near = np.nan_to_num(near, nan=-np.inf, posinf=-np.inf)
    return np.where(np.isfinite(near).any(axis=1), near.argmax(axis=1), UNKNOWN)
