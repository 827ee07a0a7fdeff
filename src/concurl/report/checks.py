"""What is looked at in a finished run: each check says how it stands, and what to do.

Every check follows from a number and a threshold below. The thresholds are rules of thumb. They separate the failures that
users of such methods report (a loss that stays at ln K, everything in two clusters, equal features, NaN) from runs that are
worth a look.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from concurl.amounts import counted, duration
from concurl.config import FEW, FEWEST
from concurl.report.facts import RunFacts, mean_known
from concurl.training.health import LOOSE, cramped

State = Literal["good", "watch", "bad"]

AGREED = 0.5  # mean agreement below this: most members would have put the images elsewhere
DOUBTFUL = 0.5  # a cluster with a larger share of unsure images
NAMED = 5  # clusters in one sentence
STUCK = 0.95  # a cluster loss above this share of ln K has learned next to nothing
HEAVY = 0.5  # a cluster with more than this share of the images, and twice an even share, has swallowed others
ALMOST_ALL = 0.9  # used instead where there are two clusters, as twice an even share would be everything
SWOLLEN = 10  # times an even share: too large, even if it is not half of the images
LIGHT = 0.1  # a cluster with less than this part of an even share is hardly a cluster
APART = 0.5  # if the pairwise NMI of the members is below this, they do not see the same clusters
FLAT = 0.1  # if the spread of the embeddings, relative to a uniform sphere's, is below this, they are nearly equal
CLEAR = 3.0  # standard errors: an epoch's loss is noisy, most of all with few images
FALLING = 0.1  # if the last tenth of clustering has more than this share of the loss's fall, it had not settled
SKIPPED = 0.05  # a larger share of unreadable files deserves a look
NOT_STARTED = "Clustering did not start"
LEARNED = "Clusters were learned"
COLLAPSED = "Embeddings collapsed"
DIVIDED = "The ensemble is divided"
UNITED = "The members agree with each other"
DIVERGED = "Training diverged. Run again with half the --learning-rate."


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: what it was, how it stands, and what to do."""

    state: State
    title: str
    text: str


def checks_of(facts: RunFacts) -> list[Check]:
    """All checks that the run's numbers allow."""
    looks = (_enough, clusters_learned, _agreement, _doubtful, _balance, _members, _spread, _progress, _files)
    return [check for look in looks if (check := look(facts))]


def percent(share: float) -> str:
    """A share in whole per cent, but never 0% of something or 100% of less than all."""
    if math.isnan(share):
        return "unknown"
    if 0 < share < 0.01:
        return "under 1%"
    if 0.99 < share < 1:
        return "over 99%"
    return f"{100 * share:.0f}%"


def _enough(facts: RunFacts) -> Check | None:
    n, k = len(facts.paths), facts.n_clusters
    if n >= FEW * k:
        return None
    fewer = ", or ask for fewer clusters (-k)" if k > FEWEST else ""
    return Check(
        "watch",
        "Few images",
        f"{counted(n, 'image')} for {counted(k, 'cluster')}: below some dozens for each, expect little. Add images{fewer}.",
    )


def clusters_learned(facts: RunFacts) -> Check | None:
    if not facts.epochs:
        return None
    if diverged := _diverged(facts):
        return diverged
    level = math.log(facts.n_clusters)
    ends = [end for end in (_last(facts.series("l2")), _last(facts.series("l3"))) if not math.isnan(end)]
    if not ends and facts.config.clusters:
        return Check(
            "bad",
            "Clustering never began",
            "No clustering loss was logged: the clusters are those of a head that has not learned. Try more --epochs.",
        )
    if not ends:
        return Check(
            "watch",
            "The clusters were not trained",
            "No clustering loss was logged, and none was asked for (--beta 0 --gamma 0): the clusters are groups of what BYOL "
            "alone has learned. Agreement says little about them; a random sample of each says more.",
        )
    worst = max(ends)
    guessing = f"pure guessing would give ln\u00a0{facts.n_clusters} = {level:.2f}"
    if worst > STUCK * level:
        return Check(
            "bad",
            NOT_STARTED,
            f"The cluster losses stayed near guessing: {worst:.2f} at the end; {guessing}. Usually the codes are too soft or the "
            f"features not ready: try more --epochs{_longer(facts)}, a smaller --epsilon (0.03) or a later --cluster-start.",
        )
    if worst > LOOSE * level:
        return Check(
            "watch",
            "The clusters are loose",
            f"At the end one of the cluster losses is {worst:.2f}; {guessing}. Two altered views of one image often fall into "
            f"different clusters. Such groups tend to follow colour and light rather than content. Try more "
            f"--epochs{_longer(facts)}, or more images.",
        )
    return Check("good", LEARNED, f"At the end no cluster loss is above {worst:.2f}; {guessing}.")


def _longer(facts: RunFacts) -> str:
    """What ten times the epochs would take, by this run's own clock; empty where it has none."""
    epochs = 10 * len(facts.epochs)
    return "" if math.isnan(facts.minutes) else f" ({epochs:,} would take about {duration(10 * facts.minutes)} here)"


def _diverged(facts: RunFacts) -> Check | None:
    titles = {"loss": "Loss", "l1": "BYOL loss", "l2": "Clustering loss", "l3": "Consensus loss"}
    for key, title in titles.items():
        logged = [epoch[key] for epoch in facts.epochs if epoch.get(key) is not None]
        if logged and not math.isfinite(logged[-1]):
            return Check("bad", f"{title} is not a number", DIVERGED)
    return None


def _agreement(facts: RunFacts) -> Check | None:
    agreement = mean_known(facts.agreement)
    if math.isnan(agreement) or agreement >= AGREED:
        return None  # the verdict has a sentence on it already
    return Check(
        "bad",
        "The ensemble disagrees with these clusters",
        "Most of its votes on an image go to other clusters than the one it was put into. Try more --epochs, or another "
        "number of clusters.",
    )


def _doubtful(facts: RunFacts) -> Check | None:
    """Clusters that most of their images are unsure of; where the ensemble disagrees with all of them, that is said once."""
    unsure = np.bincount(facts.cluster, weights=facts.unsure, minlength=facts.n_clusters)
    doubtful = np.flatnonzero(unsure > DOUBTFUL * facts.sizes)
    if not len(doubtful) or _agreement(facts):
        return None
    few = [f"\u2068{facts.names[c]}\u2069" for c in doubtful[:NAMED]]
    more = f" and {counted(len(doubtful) - NAMED, 'other')}" if len(doubtful) > NAMED else ""
    fewer = "a smaller -k, or " if facts.n_clusters > FEWEST else ""
    return Check(
        "watch",
        f"{counted(len(doubtful), 'cluster')} mostly unsure",
        f"Most images of {', '.join(few)}{more} are unsure: the ensemble's members put them elsewhere. Perhaps there are "
        f"fewer than {facts.n_clusters} groups, or some are not learned yet: try {fewer}more --epochs.",
    )


def _balance(facts: RunFacts) -> Check:
    sizes, n, k = facts.sizes, len(facts.paths), facts.n_clusters
    share = f"\u2068{facts.names[int(sizes.argmax())]}\u2069 has {percent(sizes.max() / n)} of all images"
    if k > 1 and sizes.max() / n > max(HEAVY, min(ALMOST_ALL, 2 / k)):
        if facts.config.balance < 1:  # one kind may well be most of the images
            return Check(
                "watch", "One cluster holds most images", f"{share}. If they are not of one kind, raise --balance."
            )
        advice = "Try fewer clusters (-k)." if k > FEWEST else "If they are not of one kind, give it more --epochs."
        return Check("bad", "One cluster holds most images", f"{share}. {advice}")
    if sizes.max() > SWOLLEN * n / k:
        much = f"{share}, over {SWOLLEN} times an even share"
        return Check("watch", "One cluster is very large", f"{much}. Its random sample shows if it is of one kind.")
    empty, small = int((sizes == 0).sum()), int(((sizes > 0) & (sizes < LIGHT * n / k)).sum())
    if empty or small:
        parts = [f"{counted(empty, 'cluster')} empty"] * bool(empty)
        parts += [f"{counted(small, 'cluster')} under a tenth of an even share"] * bool(small)
        return Check(
            "watch",
            "Empty or tiny clusters",
            f"{' and '.join(parts)}: perhaps fewer than {k} groups. Try {'a smaller -k' if k > FEWEST else 'more --epochs'}.",
        )
    ratio = f"The largest cluster is {sizes.max() / sizes.min():.1f} times the smallest."
    if facts.config.balance == 1 and _clustered(facts).any():  # or one might take it for a finding
        ratio += " The run asks for equal sizes: if some kinds are much more common than others, try --balance 0.7."
    return Check("good", "No empty or dominant cluster", ratio)


def _members(facts: RunFacts) -> Check | None:
    nmi = _last(facts.series("diversity_mean"))
    if math.isnan(nmi) or (facts.sizes > 0).sum() < 2:  # with one cluster, members cannot differ
        return None
    if nmi < APART:
        return Check(
            "watch",
            DIVIDED,
            f"Two members of the ensemble make clusters that match by only {nmi:.2f} (NMI; 1: the same clusters). Try more "
            "--epochs, or a larger --projection-dim.",
        )
    if _enough(facts) or _agreement(facts) or _doubtful(facts):
        return None  # agreement on few images may be chance, and agreement on other labels deserves no praise
    return Check(
        "good",
        UNITED,
        f"Two members of the ensemble make clusters that match by {nmi:.2f} (NMI; 1: the same clusters).",
    )


def _spread(facts: RunFacts) -> Check | None:
    if facts.embeddings is None or len(facts.embeddings) < 2:
        return None
    some = max(1, len(facts.embeddings) // 10_000)  # some 10,000 rows are enough
    z = facts.embeddings[::some].astype(np.float64)
    # Unit vectors spread evenly have a standard deviation of 1/sqrt(d) in each of d dimensions.
    spread = float(z.std(axis=0).mean() * math.sqrt(z.shape[1])) if np.isfinite(z).all() else math.nan
    if math.isnan(spread):
        return Check("bad", "Embeddings are not numbers", DIVERGED)
    if spread < FLAT:
        return Check(
            "bad",
            COLLAPSED,
            f"All images look alike to the model (spread {spread:.2f} of 1). Give it more --epochs, another --preset, or half "
            f"the --learning-rate.",
        )
    directions = _last(facts.series("feature_dimensions"))
    if _last(facts.series("feature_std")) < FLAT or cramped(directions, facts.n_clusters):
        return None  # the features behind them hardly differ, or only in a plane, of which the health watch has warned
    return Check(
        "good",
        "Images look different to the model",
        f"Spread {spread:.2f}: at 0 all look alike, at 1 they differ evenly.",
    )


def _progress(facts: RunFacts) -> Check | None:
    if _diverged(facts):
        return None
    # Only since clustering began, because the sum of the losses jumps there. And not for BYOL alone: with a learning rate
    # that goes to zero, its loss falls fastest at the very end, by design.
    loss, clustered = facts.series("loss"), _clustered(facts)
    loss = loss[int(clustered.argmax()) :] if clustered.any() else loss[:0]
    loss = loss[np.isfinite(loss)]
    if len(loss) < 10:
        return None
    tenth = max(2, len(loss) // 10)
    first, before, last = (float(part.mean()) for part in (loss[:tenth], loss[-2 * tenth : -tenth], loss[-tenth:]))
    # Neighbours differ by their noise alone, nearly; the last two tenths are means of `tenth` such values each.
    noise = float(np.diff(loss[-2 * tenth :]).std()) / math.sqrt(tenth)
    if first > last and before - last > max(FALLING * (first - last), CLEAR * noise):
        return Check(
            "watch",
            "The loss was still falling",
            f"At the end it fell as fast as before: {percent((before - last) / (first - last))} of the fall since "
            f"clustering began came in the last tenth. More --epochs may help.",
        )
    return Check("good", "The loss has settled", "It hardly changed at the end of training.")


def _clustered(facts: RunFacts) -> NDArray[np.bool_]:
    """For each epoch: was a cluster loss logged?"""
    return np.isfinite(facts.series("l2")) | np.isfinite(facts.series("l3"))


def _files(facts: RunFacts) -> Check | None:
    if not facts.skipped:
        return None
    share = len(facts.skipped) / (len(facts.skipped) + len(facts.paths))
    text = f"{counted(len(facts.skipped), 'file')} ({percent(share)}) left out: {facts.reasons}. Details lists each."
    if share > SKIPPED:
        return Check("watch", "Many files were skipped", text)
    return Check("good", "Most files were used", text)


def _last(series: NDArray[np.float64]) -> float:
    """Mean over the last tenth of what was logged: one epoch is noise."""
    known = series[~np.isnan(series)]
    return float(known[-max(1, len(known) // 10) :].mean()) if len(known) else math.nan
