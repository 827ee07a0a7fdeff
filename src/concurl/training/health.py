"""A label-free watch over the run: says what it saw, what that usually means and what to try, once each."""

from __future__ import annotations

import logging
import math
from typing import Any

from concurl.config import Config

log = logging.getLogger("concurl")

PATIENCE = 5  # looks that a symptom must last: the first ones look like this in every run, but not the last one
GAINED = 0.95  # of the cluster loss in its first epoch: a run that ends above it has learned nothing since
TIGHT = 0.2  # of ln K: clusters that were found at once, and whose loss is below that, had little left to gain


class Health:
    """Looks at each epoch's row of metrics. `strict` makes a symptom the end of the run: see `complaint`."""

    def __init__(self, config: Config, *, strict: bool = False) -> None:
        self.config, self.strict = config, strict
        self.warnings: list[str] = []
        self._seen: dict[str, int] = {}
        self._told: set[str] = set()
        self._members_differed = False
        self._cluster_losses: list[float] = []

    @property
    def complaint(self) -> str | None:
        """What must end a strict run."""
        return self.warnings[0] if self.strict and self.warnings else None

    def look(self, row: dict[str, Any]) -> None:
        """A value that the row does not hold was not looked at in that epoch, and says nothing.

        The last epoch's row is what the run ends with: a symptom in it is told at once, however few looks there were.
        """
        last = row.get("epoch", -1) + 1 == self.config.epochs
        patience = 1 if last else PATIENCE
        K = self.config.n_clusters
        ln_k, loss = math.log(K), row.get("l2" if self.config.beta > 0 else "l3")
        if loss is not None:
            with_byol = ", --alpha 1" if self.config.alpha == 0 else ""
            self._watch(
                "ln-k",
                patience,
                loss > 0.99 * ln_k,
                f"the clustering loss stands at ln K = {ln_k:.3f} or above: the assignments say nothing. Usually the codes "
                f"are too soft or the features too young: try more --epochs{with_byol}, a smaller --epsilon (0.03) or a "
                "later --cluster-start",
            )
            self._cluster_losses.append(loss)
            first = self._cluster_losses[0]
            # Without a cluster_lr there is no second course of the learning rate, and none to lower.
            told = last and len(self._cluster_losses) > PATIENCE and self.config.cluster_lr is not None
            self._watch(
                "no gain",
                1,
                told and loss > max(GAINED * first, TIGHT * ln_k),
                f"learning clusters has gained nothing: their loss ends at {loss:.3f}, and was {first:.3f} in its first epoch. "
                "If the clusters look good on the page, all is well. If not, usually the learning rate is too high for "
                "features trained so long, and undoes them: try a smaller --cluster-lr (concurl fit --from this run)",
            )
        sizes = row.get("cluster_sizes")
        if sizes is not None:
            used, n = sum(size > 0 for size in sizes), sum(sizes)
            # A sample misses clusters by chance: of those of half the average size, one in exp(n / 2K).
            missed = K * math.exp(-n / (2 * K)) if n == self.config.monitor_images else 0
            self._watch(
                "empty",
                patience,
                K - used > missed,
                f"only {used} of {K} clusters are used before their sizes are evened out. Usually K is larger than what "
                "the images hold, or clustering began too early: try fewer clusters (-k), more --epochs or a later "
                "--cluster-start",
            )
        std = row.get("feature_std")
        if std is not None:
            self._watch(
                "collapse",
                patience,
                std < 0.1,
                f"the features hardly differ between images (spread {std:.3f}, 1 is even). Usually the learning rate is "
                "too high, the augmentation hides the content, or the run is too short: try half the --learning-rate, "
                "another --preset, or more --epochs",
            )
        nmi = row.get("diversity_mean")
        if nmi is not None:
            self._members_differed |= nmi < 0.999
            self._watch(
                "discord",
                patience,
                nmi < 0.05,
                f"the members of the ensemble do not come to agree (NMI {nmi:.3f}, 1 is agreement). Usually the clusters "
                "have nothing to hold on to yet, or the projections keep too little: try a larger --projection-dim, a "
                "later --cluster-start or more --epochs",
            )
            self._watch(
                "unison",
                PATIENCE,  # at the end alone, full agreement is what training is for
                self.config.gamma > 0 and not self._members_differed,
                f"the members of the ensemble have agreed from the start (NMI {nmi:.3f}): the consensus loss teaches "
                "nothing. Usually the images are near copies, or the transformations are too alike: try a smaller "
                "--projection-dim, or look at the images with concurl audit",
            )

    def _watch(self, name: str, patience: int, seen: bool, message: str) -> None:
        self._seen[name] = self._seen.get(name, 0) + 1 if seen else 0
        if self._seen[name] >= patience and name not in self._told:
            self._told.add(name)
            self.warnings.append(message)
            log.warning("%s", message)
