"""A label-free watch over the run: says once of each symptom what it saw, what that usually means and what to try."""

from __future__ import annotations

import logging
import math
from typing import Any

from concurl.config import FEWEST, Config

log = logging.getLogger("concurl")

PATIENCE = 5  # looks that a symptom must last: a sound run shows some of them at first, but not at its end
GAINED = 0.95  # of the cluster loss in its first epoch: a run that ends above this has learned nothing since
ROOM = 3.0  # directions in which features vary: in a plane, many clusters cannot keep away from each other
TIGHT = 0.2  # of ln K: clusters with a loss below this were found at once and had little left to gain
# Of ln K: above this, two views of an image often differ. Runs with an ACC of 0.8 and more end at 0.03 to 0.4.
LOOSE = 0.6
# How these warnings begin: the page has checks of its own that say the same, or the contrary.
GUESSING = "the clustering loss stands at ln K"
ALIKE = "the features hardly differ between images"
DISCORD = "the members of the ensemble do not come to agree"
UNISON = "the members of the ensemble have agreed from the start"
IDLE = "learning clusters has gained nothing"


def cramped(dimensions: float, n_clusters: int) -> bool:
    """Do features vary in too few directions for so many clusters? K that are far from each other vary in K - 1."""
    return dimensions < min(ROOM, (n_clusters - 1) / 2)


class Health:
    """Looks at each epoch's row of metrics. With `strict` a symptom ends the run: see `complaint`."""

    def __init__(self, config: Config, *, strict: bool = False) -> None:
        self.config, self.strict = config, strict
        self._seen: dict[str, int] = {}  # symptom -> how many looks in a row
        self._told: dict[str, str] = {}  # symptom -> the warning
        self._members_differed = False
        self._cluster_losses: list[float] = []

    @property
    def warnings(self) -> list[str]:
        """What was told, except for symptoms that have gone since."""
        return [message for name, message in self._told.items() if self._seen[name]]

    @property
    def complaint(self) -> str | None:
        """What must end a strict run."""
        return self.warnings[0] if self.strict and self.warnings else None

    def look(self, row: dict[str, Any]) -> None:
        """Warn of what the row shows. A value that is not in the row was not measured in that epoch, and is passed over.

        The last epoch's row is what the run ends with: a symptom in it is told at once, however short the run was.
        """
        last = row.get("epoch", -1) + 1 == self.config.epochs
        patience = 1 if last else PATIENCE
        loss = row.get("l2" if self.config.beta > 0 else "l3")
        if loss is not None:
            self._look_at_loss(loss, patience)
            if last:
                self._look_at_gain()
        if (sizes := row.get("cluster_sizes")) is not None:
            self._look_at_sizes(sizes, patience)
        if (std := row.get("feature_std")) is not None:
            self._look_at_features(std, row.get("feature_dimensions"), patience)
        if (nmi := row.get("diversity_mean")) is not None:
            self._look_at_members(nmi, loss, patience)

    def _look_at_loss(self, loss: float, patience: int) -> None:
        self._cluster_losses.append(loss)
        ln_k = math.log(self.config.n_clusters)
        with_byol = ", --alpha 1" if self.config.alpha == 0 else ""
        self._watch(
            "ln-k",
            patience,
            loss > 0.99 * ln_k,
            f"{GUESSING} = {ln_k:.3f} or above: the assignments say nothing. Usually the codes "
            f"are too soft or the features not ready: try more --epochs{with_byol}, a smaller --epsilon (0.03) or a "
            "later --cluster-start",
        )

    def _look_at_gain(self) -> None:
        # Without a cluster_lr the learning rate has no second stage that could be lowered.
        if len(self._cluster_losses) <= PATIENCE or self.config.cluster_lr is None:
            return
        first, loss = self._cluster_losses[0], self._cluster_losses[-1]
        ln_k = math.log(self.config.n_clusters)
        # Loose clusters, as few or varied photographs give them, gain little whatever the rate: of them the page speaks.
        self._watch(
            "no gain",
            1,
            loss > GAINED * first and TIGHT * ln_k < loss < LOOSE * ln_k,
            f"{IDLE}: their loss ends at {loss:.3f}, and was {first:.3f} in its first epoch. "
            "If the clusters look good on the page, all is well. If not, usually the learning rate is too high for "
            "features trained so long, and undoes them: try a smaller --cluster-lr (concurl fit --from this run)",
        )

    def _look_at_sizes(self, sizes: list[int], patience: int) -> None:
        K, used, n = self.config.n_clusters, sum(size > 0 for size in sizes), sum(sizes)
        fewer = "fewer clusters (-k), " if K > FEWEST else ""
        # A sample misses clusters by chance: of those of half the average size, one in exp(n / 2K).
        missed = K * math.exp(-n / (2 * K)) if n == self.config.monitor_images else 0
        self._watch(
            "empty",
            patience,
            K - used > missed,
            f"only {used} of {K} clusters are used. Any other has images only because sizes are evened out. Usually K is larger "
            f"than what the images hold, or clustering began too early: try {fewer}more --epochs or a later --cluster-start",
        )

    def _look_at_features(self, std: float, dimensions: float | None, patience: int) -> None:
        collapsed = std < 0.1
        self._watch(
            "collapse",
            patience,
            collapsed,
            f"{ALIKE} (spread {std:.3f}, 1 is even). Usually the learning rate is "
            "too high, the augmentation hides the content, or the run is too short: try half the --learning-rate, "
            "another --preset, or more --epochs",
        )
        if dimensions is None:  # a run that was begun before this was measured
            return
        K = self.config.n_clusters
        self._watch(
            "flat",
            patience,
            cramped(dimensions, K) and not collapsed,
            f"the features vary in only {dimensions:.1f} directions, too few to keep {K} clusters apart. Usually the learning "
            "rate is too high for the batch, or the augmentation leaves little to tell images by: try a third of the "
            "--learning-rate, another --preset, or more --epochs",
        )

    def _look_at_members(self, nmi: float, loss: float | None, patience: int) -> None:
        # Where kinds are easy to tell apart, members agree at once because there is nothing left to find.
        found = loss is not None and loss < LOOSE * math.log(self.config.n_clusters)
        self._members_differed |= nmi < 0.999 or found
        self._watch(
            "discord",
            patience,
            nmi < 0.05,
            f"{DISCORD} (NMI {nmi:.3f}, 1 is agreement). Usually the clusters "
            "have nothing to hold on to yet, or the projections keep too little: try a larger --projection-dim, a "
            "later --cluster-start or more --epochs",
        )
        self._watch(
            "unison",
            PATIENCE,  # also in the last epoch, where full agreement is what training aims at
            self.config.gamma > 0 and not self._members_differed,
            f"{UNISON} (NMI {nmi:.3f}): the consensus loss teaches "
            "nothing. Usually the images are near copies, or the transformations are too alike: try a smaller "
            "--projection-dim, or look at the images with concurl audit",
        )

    def _watch(self, name: str, patience: int, seen: bool, message: str) -> None:
        """Warn, once in a run, when the symptom has been seen in `patience` looks in a row."""
        self._seen[name] = self._seen.get(name, 0) + 1 if seen else 0
        if self._seen[name] >= patience and name not in self._told:
            self._told[name] = message
            log.warning("%s", message)
