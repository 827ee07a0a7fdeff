"""Which images stand for a cluster: the most typical, the most unsure and a random few."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from concurl.report.facts import RunFacts, mean_known

MAX_GALLERIES = 100  # for the largest clusters; the others get a line in a table
_PICTURES = 2_400  # over all galleries and lenses: what the page's budget of bytes can show at a useful size
_MOST = 12  # pictures per lens
MAX_FACES = 12  # clusters at a glance: one row on a wide screen
LENSES = {"typical": "Most typical", "unsure": "Most unsure", "random": "Random sample"}


@dataclass(frozen=True)
class Gallery:
    """A cluster in numbers and pictures; `rows` has a list of images for each lens."""

    cluster: int
    size: int
    unsure: int
    confidence: float  # mean; NaN for an empty cluster
    agreement: float
    rows: dict[str, list[int]]


def galleries(facts: RunFacts) -> list[Gallery]:
    """One per cluster, in their order. Those beyond MAX_GALLERIES have empty lists."""
    pictured = set(np.argsort(-facts.sizes, kind="stable")[:MAX_GALLERIES].tolist())
    count = min(_MOST, _PICTURES // (len(LENSES) * len(pictured)))
    return [
        Gallery(
            cluster,
            len(members),
            int(facts.unsure[members].sum()),
            mean_known(facts.confidence[members]),
            mean_known(facts.agreement[members]),
            _lenses(facts, cluster, members, count) if cluster in pictured else {lens: [] for lens in LENSES},
        )
        for cluster, members in enumerate(facts.members)
    ]


def faces(cards: list[Gallery]) -> list[Gallery]:
    """The largest few, in their order: a picture of each on the first screen says what the run has found."""
    largest = sorted((card for card in cards if card.rows["typical"]), key=lambda card: -card.size)[:MAX_FACES]
    return sorted(largest, key=lambda card: card.cluster)


def _lenses(facts: RunFacts, cluster: int, members: NDArray[np.int64], count: int) -> dict[str, list[int]]:
    # Not by confidence: it saturates, and the most confident of CIFAR-10's birds were near copies of one airplane.
    typical = facts.outlier[members]
    if facts.embeddings is not None and len(members):
        z = facts.embeddings[members].astype(np.float64)
        typical = -(z @ z.mean(axis=0))
    surely = np.lexsort((facts.agreement[members], facts.margin[members], facts.confidence[members]))
    some = np.random.default_rng(cluster).permutation(len(members))
    return {
        "typical": members[np.argsort(typical, kind="stable")[:count]].tolist(),
        "unsure": members[surely[:count]].tolist(),
        "random": members[some[:count]].tolist(),
    }
