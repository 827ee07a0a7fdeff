"""The verdict in words: how many clusters, how sure it is of them, and whether the run is healthy."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from concurl.amounts import counted
from concurl.errors import UserError
from concurl.report.checks import (
    COLLAPSED,
    DIVIDED,
    LEARNED,
    NOT_STARTED,
    UNITED,
    Check,
    State,
    checks_of,
    clusters_learned,
    percent,
)
from concurl.report.facts import RunFacts, mean_known, shown
from concurl.training.health import ALIKE, DISCORD, GUESSING, IDLE, UNISON

# The least mean agreement of the ensemble (or mean confidence, where there is no agreement) for each word.
SURE = ((0.9, "very sure"), (0.75, "mostly sure"), (0.5, "often unsure"), (0.0, "unsure"))

# A check's title, and how a warning begins that says the same and is then left out; or the contrary, which leaves out the check.
SAME = {NOT_STARTED: GUESSING, COLLAPSED: ALIKE, DIVIDED: DISCORD}
CONTRARY = {LEARNED: IDLE, UNITED: UNISON}


@dataclass(frozen=True)
class Verdict:
    """What the page says first: a headline, whether to rely on the run, a few figures, and the checks, worst first."""

    headline: str
    health: str
    sentences: tuple[str, ...]
    state: State
    checks: tuple[Check, ...]

    @property
    def trouble(self) -> str:
        """What is bad about the run; empty where nothing is."""
        titles = dict.fromkeys(check.title for check in self.checks if check.state == "bad")
        # a name in capitals keeps them
        return ", ".join(t if t[1:2].isupper() else t[:1].lower() + t[1:] for t in titles)


def judge(facts: RunFacts) -> Verdict:
    """The verdict on a run."""
    warnings = facts.summary.get("warnings")
    told = [shown(text) for text in warnings] if isinstance(warnings, list) else []
    denied = [title for title, begins in CONTRARY.items() if any(text.startswith(begins) for text in told)]
    found = [check for check in checks_of(facts) if check.title not in denied]
    said = tuple(SAME[check.title] for check in found if check.title in SAME)
    found += [_warning(text) for text in told if not text.startswith(said)]
    checks = tuple(sorted(found, key=lambda check: ("bad", "watch", "good").index(check.state)))
    states = {check.state for check in checks}
    state: State = "bad" if "bad" in states else "watch" if "watch" in states else "good"
    n, k = len(facts.paths), facts.n_clusters
    headline = f"{counted(n, 'image')} in {counted(k, 'cluster')}"
    figures = tuple(_how_sure(facts, clusters_learned(facts)))
    return Verdict(headline, _health(state, checks), figures, state, checks)


def trouble_of(folder: Path) -> str:
    """What is bad about the run in a folder; empty where nothing is, or where its table is not the run's own any more."""
    try:
        return judge(RunFacts.read(folder)).trouble
    except UserError:  # who exports some of the images alone has cut the table down
        return ""


def _warning(text: str) -> Check:
    """A warning of the run's health watch, by its symptom; what that means and what to try follow."""
    symptom, *rest = re.split(r"[.:] ", text.removesuffix("."), maxsplit=1)
    return Check("watch", _capital(symptom), "".join(f"{_capital(part)}." for part in rest))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _how_sure(facts: RunFacts, losses: Check | None) -> list[str]:
    agreement, confidence = mean_known(facts.agreement), mean_known(facts.confidence)
    basis = confidence if math.isnan(agreement) else agreement
    if math.isnan(basis):
        return ["Nothing in the folder says how sure they are."]
    word = next(word for least, word in SURE if basis >= least)
    learned = losses is None or losses.state == "good"
    if not learned and not math.isnan(agreement):
        # Members can agree on clusters that mean little, and on those of k-means (BYOL alone) they mostly do, as
        # projections keep distances: then give the figure without praise.
        first = f"On average {percent(agreement)} of the ensemble's members vote for an image's cluster."
    elif math.isnan(agreement):
        first = f"The model is {word} of these clusters: the mean confidence is {percent(confidence)}."
    else:
        votes = f"on average {percent(agreement)} of its members vote for an image's cluster"
        first = f"The ensemble is {word} of these clusters: {votes}."
    unsure = int(facts.unsure.sum())
    if not unsure:
        return [first, "No image is marked unsure."]
    verb = "is" if unsure == 1 else "are"
    return [first, f"{counted(unsure, 'image')} ({percent(unsure / len(facts.paths))}) {verb} marked unsure."]


def _health(state: State, checks: tuple[Check, ...]) -> str:
    if not checks:
        return "Nothing in the folder says how training went."
    if state == "good":
        return (
            "The run looks healthy. Only you can tell whether these are the groups you want: look at the random sample of "
            "each below."
        )
    if state == "bad":
        return "The run is not healthy: do not rely on these clusters yet. What is wrong, and what to try, is listed below."
    return "Before you rely on these clusters, read the notes below."
