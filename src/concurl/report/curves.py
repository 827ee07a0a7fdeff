"""How training went: which curves are drawn, and what each of them means."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from concurl.report.chart import Chart, Line, line_chart, share_chart
from concurl.report.facts import RunFacts

_TABLE_KEYS = {
    "l1": "L1, BYOL",
    "l2": "L2, clustering",
    "l3": "L3, consensus",
    "loss": "Loss",
    "diversity_mean": "NMI of members",
    "feature_std": "Feature spread",
    "feature_dimensions": "Feature directions",
    "learning_rate": "Learning rate",
    "images_per_second": "Images/s",
    "acc": "ACC",
    "nmi": "NMI",
    "ari": "ARI",
}
_TABLE_ROWS = 12


def curves(facts: RunFacts, colours: list[str]) -> list[Chart]:
    """The charts that the log has numbers for, the losses first."""
    if len(facts.epochs) < 2:
        return []
    x = facts.series("epoch") + 1  # the log counts from 0, people from 1
    k = facts.n_clusters
    guess = (f"guessing: ln {k} = {math.log(k):.2f}", math.log(k)) if k > 1 else None

    def one(key: str, title: str, note: str, level: tuple[str, float] | None = None) -> Chart | None:
        return line_chart(key, title, note, x, [Line(title, _joined(facts.series(key)))], level=level)

    directions = _joined(facts.series("feature_dimensions"))
    nmi, deviation = _joined(facts.series("diversity_mean")), _joined(facts.series("diversity_std"))
    found = [
        one("l1", "BYOL loss, L1", "Two views (altered copies) of an image should predict each other."),
        one("l2", "Clustering loss, L2", "Two views should fall into the same cluster.", guess),
        one("l3", "Consensus loss, L3", "Every member of the ensemble should agree.", guess),
        line_chart(
            "diversity",
            "Match between members",
            "Mean NMI of the clusterings of two members (1: the same), with one standard deviation.",
            x,
            [Line("Pairwise NMI", nmi, spread=deviation)],
            limits=(0.0, 1.0),
        ),
        _sizes(facts, colours),
        line_chart(
            "scores",
            "Scores over training",
            "On the images that were looked at after an epoch.",
            x,
            _scores(facts),
            limits=(0.0, 1.0),
        ),
        line_chart(
            "feature_dimensions",
            "Directions of the features",
            f"In how many directions images differ. {k} clusters of equal size, far apart, have {k - 1}.",
            x,
            [Line("Directions", directions)],
            limits=(0.0, 1.05 * float(np.nanmax(directions, initial=1.0))),
        ),
    ]
    return [chart for chart in found if chart]


def numbers(facts: RunFacts) -> tuple[list[str], list[list[str]]]:
    """The curves as a table: the titles of its columns, and a row for each of some evenly spaced epochs."""
    keys = [key for key in _TABLE_KEYS if np.isfinite(facts.series(key)).any()]
    last = len(facts.epochs) - 1
    some = np.unique(np.linspace(0, last, min(_TABLE_ROWS, last + 1)).round().astype(int))
    columns = {"epoch": facts.series("epoch") + 1} | {key: facts.series(key) for key in keys}
    rows = [[_number(columns[key][i]) for key in columns] for i in some]
    return ["Epoch", *(_TABLE_KEYS[key] for key in keys)], rows


def _scores(facts: RunFacts) -> list[Line]:
    hues = {"acc": "var(--accent)", "nmi": "var(--second)", "ari": "var(--third)"}
    return [Line(key.upper(), _joined(facts.series(key)), hue) for key, hue in hues.items()]


def _joined(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values that are measured only every few epochs, interpolated in between."""
    known = np.isfinite(y)
    if known.sum() < 2:
        return y
    return np.interp(np.arange(len(y)), np.where(known)[0], y[known], left=math.nan, right=math.nan)


def _sizes(facts: RunFacts, colours: list[str]) -> Chart | None:
    k = facts.n_clusters
    looks = [
        (epoch["epoch"] + 1, np.array(epoch["cluster_sizes"], dtype=np.float64))
        for epoch in facts.epochs
        if isinstance(epoch.get("cluster_sizes"), list) and len(epoch["cluster_sizes"]) == k
    ]
    if len(looks) < 2:
        return None
    sizes: NDArray[np.float64] = np.stack([size for _, size in looks])
    totals = sizes.sum(axis=1, keepdims=True)
    return share_chart(
        "sizes",
        "Cluster sizes",
        "Share of the images in each cluster, before sizes are evened out at the end.",
        np.array([epoch for epoch, _ in looks], dtype=np.float64),
        sizes / np.where(totals > 0, totals, 1),
        facts.names,
        colours,
    )


def _number(value: float) -> str:
    if math.isnan(value):
        return "\u2013"
    return f"{value:,.0f}" if value == round(value) or value >= 1000 else f"{value:.4g}"
