"""Do the unlabelled signs of a run tell a good one from a bad one?   python benchmarks/ranking.py

For each data set, over all its recorded runs of one recipe that had all three losses: Spearman's correlation of what the watch
saw at the end with the ACC of the codes.
"""

from __future__ import annotations

import argparse
import csv
import math
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from figures import metrics
from record import RESULTS

TABLES = {
    "digits": "digits",
    "cifar10": "CIFAR-10",
    "stl10": "STL-10",
}  # a table, with its variants beside it, and its name
RECIPES = {"digits": "digits", "cifar10": "modern", "stl10": "paper-stl10"}  # runs of other presets cannot be compared


def signs(last: dict[str, Any]) -> dict[str, float]:
    """What can be known without labels, each so that more should be better."""
    sizes = np.array(last["cluster_sizes"], float)
    shares = sizes[sizes > 0] / sizes.sum()
    return {
        "low L1": -last["l1"],
        "low L2": -last["l2"],
        "low L3": -last["l3"],
        "low L1 + L2 + L3": -(last["l1"] + last["l2"] + last["l3"]),
        "diversity: mean NMI": last["diversity_mean"],
        "diversity: small deviation": -last["diversity_std"],
        "even clusters: entropy": -float((shares * np.log(shares)).sum()) / math.log(len(sizes)),
        "spread of the features": last["feature_std"],
    }


def finished(table: str) -> list[tuple[float, dict[str, float]]]:
    """ACC and signs of every run of a data set and its recipe that had all three losses."""
    found = []
    for path in sorted(RESULTS.glob(f"{table}*.csv")):
        for row in csv.DictReader(path.open(newline="")):
            last = metrics(row["name"])[-1]
            if row["recipe"] == RECIPES[table] and row["codes_acc"] and last.get("l3") is not None:
                found.append((float(row["codes_acc"]), signs(last)))
    return found


def ranked() -> list[str]:
    """The lines of a Markdown table, a column to a data set."""
    runs = {title: finished(table) for table, title in TABLES.items()}
    about = [f"{title}, {len(of)} runs, ACC {min(of)[0]:.3f} to {max(of)[0]:.3f}" for title, of in runs.items()]
    lines = [f"| sign | {' | '.join(about)} |", "|---" * (len(about) + 1) + "|"]
    for sign in runs["digits"][0][1]:
        cells = []
        for of in runs.values():
            rho, p = spearmanr([seen[sign] for _, seen in of], [acc for acc, _ in of])
            cells.append(f"{rho:+.2f} (p {p:.0e})" if p < 0.01 else f"{rho:+.2f} (p {p:.2f})")
        lines.append(f"| {sign} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    print("\n".join(ranked()))
