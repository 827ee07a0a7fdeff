"""A label-free look at the run after an epoch: how diverse is the ensemble, how large are the clusters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from concurl.config import Config
from concurl.data.batches import sample
from concurl.network.embed import embed
from concurl.network.model import Model
from concurl.objective.ensemble import diversity, ensemble_log_assignments
from concurl.objective.sinkhorn import sinkhorn

Judge = Callable[[NDArray[np.int64], NDArray[np.int64]], dict[str, float]]
"""(image ids, their clusters) -> scores against labels that only the judge knows; see clustering.evaluate."""


class Monitor:
    """Looks at a fixed, seeded sample of the images, with the evaluation's view of them."""

    def __init__(
        self, config: Config, images: NDArray[np.uint8], A: Tensor, autocast: torch.dtype | None, judge: Judge | None
    ) -> None:
        assert config.image_size is not None, "settle the config first"
        self.config, self.A, self.autocast, self.judge = config, A, autocast, judge
        self.ids = sample(config.seed, len(images), config.monitor_images).numpy()
        self.images = np.ascontiguousarray(images[self.ids])

    def embeddings(self, model: Model) -> tuple[Tensor, Tensor]:
        """z of the online branch and v of the target, (n, dim) each, unit length."""
        assert self.config.image_size is not None
        parts = embed(
            model, self.images, image_size=self.config.image_size, sobel=self.config.sobel, autocast=self.autocast
        )
        z, v = zip(*((online.z, target.v) for online, target in parts), strict=True)
        return normalize(torch.cat(z), dim=1), normalize(torch.cat(v), dim=1)

    def look(self, model: Model, clustering: bool) -> dict[str, Any]:
        c = self.config
        z, v = self.embeddings(model)
        # Deviation of the unit vectors' components, times sqrt(dim): 1 for features spread evenly, 0 for collapse.
        seen: dict[str, Any] = {"feature_std": float(v.std(dim=0).mean() * v.shape[1] ** 0.5)}
        if not clustering:
            return seen
        C = model.prototypes.detach()
        q, _ = sinkhorn(z @ normalize(C, dim=1).t(), c.epsilon, 50)
        labels = q.argmax(1)
        p_labels = (z @ normalize(C, dim=1).t()).argmax(1)
        seen["cluster_sizes"] = torch.bincount(p_labels, minlength=c.n_clusters).tolist()
        votes = ensemble_log_assignments(z, C, self.A, c.tau).argmax(2)  # (M, n)
        seen["diversity_mean"], seen["diversity_std"] = diversity(votes, c.n_clusters)
        if self.judge is not None:
            seen.update(self.judge(self.ids, labels.cpu().numpy()))
        return seen
