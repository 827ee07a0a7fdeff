"""Do the unlabelled signs of a run tell a good one from a bad one?   python benchmarks/ranking.py results/digits*.csv

Over all runs of the given tables, Spearman's correlation of what the watch saw at the end with the ACC of the codes.
All runs must be of one data set and one K.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from figures import metrics


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


def ranked(tables: Sequence[Path]) -> list[str]:
    """The lines of a Markdown table."""
    found: list[tuple[float, dict[str, float]]] = []
    for table in tables:
        for row in csv.DictReader(table.open(newline="")):
            last = metrics(row["name"])[-1]
            if row["codes_acc"] and last.get("l3") is not None:
                found.append((float(row["codes_acc"]), signs(last)))
    acc = [score for score, _ in found]
    lines = [
        f"{len(found)} runs, ACC {min(acc):.3f} to {max(acc):.3f}:",
        "",
        "| sign | Spearman's rho | p |",
        "|---|---|---|",
    ]
    for sign in found[0][1]:
        rho, p = spearmanr([seen[sign] for _, seen in found], acc)
        lines.append(f"| {sign} | {rho:+.2f} | {p:.0e} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="+", type=Path)
    print("\n".join(ranked(parser.parse_args().tables)))


if __name__ == "__main__":
    main()
