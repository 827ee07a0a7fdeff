"""A label-free watch over the run: says what it saw, what that usually means and what to try, once each."""

from __future__ import annotations

import logging
import math
from typing import Any

from concurl.config import Config

log = logging.getLogger("concurl")

PATIENCE = 5  # epochs a symptom must last: the first ones look like this in every run


class Health:
    """Looks at each epoch's row of metrics."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.warnings: list[str] = []
        self._epochs: dict[str, int] = {}

    def look(self, row: dict[str, Any]) -> None:
        ln_k = math.log(self.config.n_clusters)
        l2, sizes = row.get("l2"), row.get("cluster_sizes")
        self._watch(
            "ln-k",
            l2 is not None and l2 > 0.99 * ln_k,
            f"the clustering loss stands at ln K = {ln_k:.3f}: the assignments say nothing. Usually the codes are too "
            "soft or the features too young: try a smaller --epsilon (0.03), a later --cluster-start, or --alpha 1",
        )
        if sizes is not None:
            used = sum(size > 0 for size in sizes)
            self._watch(
                "empty",
                used < self.config.n_clusters,
                f"only {used} of {self.config.n_clusters} clusters are used. Usually K is larger than what the images "
                "hold, or clustering began too early: try fewer clusters or a later --cluster-start",
            )
        std = row.get("feature_std")
        self._watch(
            "collapse",
            std is not None and std < 0.1,
            f"the features hardly differ between images (spread {std or 0:.3f}, 1 is even). Usually the learning rate is "
            "too high or the augmentation hides the content: try half the --learning-rate, or another --preset",
        )

    def _watch(self, name: str, seen: bool, message: str) -> None:
        self._epochs[name] = self._epochs.get(name, 0) + 1 if seen else 0
        if self._epochs[name] == PATIENCE:
            self.warnings.append(message)
            log.warning("%s", message)
