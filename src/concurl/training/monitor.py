"""A look at the run after an epoch, without labels: how diverse the ensemble is, and how large the clusters are."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from concurl.config import Config, filled
from concurl.data.batches import sample
from concurl.data.storage.subset import pick
from concurl.network.embed import embed
from concurl.network.model import Embeddings, Model
from concurl.objective.ensemble import diversity, ensemble_log_assignments
from concurl.objective.sinkhorn import sinkhorn

Judge = Callable[[NDArray[np.int64], NDArray[np.int64]], dict[str, float]]
"""(image ids, their clusters) -> scores, by labels that only the judge knows; see clustering/evaluate.py."""


class Monitor:
    """Looks at a fixed, seeded sample of the images, in their evaluation view."""

    def __init__(
        self, config: Config, images: NDArray[np.uint8], A: Tensor, autocast: torch.dtype | None, judge: Judge | None
    ) -> None:
        self.config, self.images, self.A, self.autocast, self.judge = config, images, A, autocast, judge
        self.ids = sample(config.seed, len(images), config.monitor_images).numpy()

    def embeddings(self, model: Model, ids: NDArray[np.int64], branches: Collection[str]) -> dict[str, Embeddings]:
        """What these branches, of "online" and "target", make of these images."""
        c, some = self.config, pick(self.images, ids)
        size, autocast = filled(c.image_size), self.autocast
        parts = list(embed(model, some, image_size=size, sobel=c.sobel, autocast=autocast, branches=branches))
        return {branch: _joined([part[branch] for part in parts]) for branch in branches}

    def look(self, model: Model, clustering: bool) -> dict[str, Any]:
        """What an epoch's row of metrics says about the model."""
        c = self.config
        found = self.embeddings(model, self.ids, ["target", "online"] if clustering else ["target"])
        v = normalize(found["target"].v, dim=1)
        # The standard deviation of a unit vector's component, times sqrt(dim): 1 if spread evenly, 0 if collapsed.
        spread = float(v.std(dim=0).mean() * v.shape[1] ** 0.5)
        seen: dict[str, Any] = {"feature_std": spread, "feature_dimensions": effective_dimensions(v)}
        if not clustering:
            return seen
        z, C = normalize(found["online"].z, dim=1), model.prototypes.detach()
        scores = z @ normalize(C, dim=1).t()
        # By p, without balancing: codes would hide that a cluster has become empty.
        seen["cluster_sizes"] = torch.bincount(scores.argmax(1), minlength=c.n_clusters).tolist()
        if len(self.A) > 1:  # a single member would pass for full agreement
            # Member by member: with 1,000 clusters, all at once would take gigabytes.
            ballots = [ensemble_log_assignments(z, C, one, c.tau).argmax(2) for one in torch.split(self.A, 1)]
            votes = torch.cat(ballots)  # (M, n)
            seen["diversity_mean"], seen["diversity_std"] = diversity(votes, c.n_clusters)
        if self.judge is not None:
            q, _ = sinkhorn(scores, c.epsilon, 50, balance=c.balance)
            seen.update(self.judge(self.ids, q.argmax(1).cpu().numpy()))
        return seen


def effective_dimensions(x: Tensor) -> float:
    """In how many directions the rows of x (n, dim) vary: (sum of l)^2 / sum of l^2, for the variances l along their axes.

    The participation ratio: r equal variances give r, and so K equal clusters, far from each other, give K - 1. A network may
    spread its features well and yet in a plane, where ten clusters have no room. Rows that are all alike give 0.
    """
    x = x.double()
    x = x - x.mean(dim=0)
    products = x @ x.t() if len(x) < x.shape[1] else x.t() @ x  # both have the same variances
    return float(products.trace() ** 2 / products.square().sum().clamp_min(1e-30))


def _joined(parts: list[Embeddings]) -> Embeddings:
    """All rows of y, v and z; nobody here asks for w."""
    y, v, z, _ = zip(*parts, strict=True)
    return Embeddings(torch.cat(y), torch.cat(v), torch.cat(z))
