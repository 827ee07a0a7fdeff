"""What the features of a run hold, branch by branch: in how many directions they vary, and how well they tell classes apart.

    python benchmarks/features.py runs/photos --labels labels.csv

Directions are counted as the watch over a run counts them (training/monitor.py). kNN: the ten nearest by cosine, of one half of
the labelled images, vote on the other half. k-means: its ACC. Labels only score.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.neighbors import KNeighborsClassifier
from torch.nn.functional import normalize

from concurl.clustering.assign import BRANCHES, embeddings
from concurl.clustering.evaluate import read_labels
from concurl.clustering.metrics import accuracy
from concurl.commands.images import open_again
from concurl.errors import UserError
from concurl.objective.kmeans import spherical_kmeans
from concurl.runs.provenance import Provenance
from concurl.runs.run import model_of
from concurl.runs.runfolder import config_of
from concurl.training.monitor import effective_dimensions
from plainly import plainly


def knn_accuracy(x: NDArray[np.float32], labels: NDArray[np.int64], neighbours: int = 10) -> float:
    """The share of one random half whose class the other half's nearest neighbours tell."""
    order = np.random.default_rng(0).permutation(len(x))
    known, asked = order[: len(x) // 2], order[len(x) // 2 :]
    judge = KNeighborsClassifier(min(neighbours, len(known)), metric="cosine").fit(x[known], labels[known])
    return float(judge.score(x[asked], labels[asked]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--labels", type=Path, metavar="FILE", help="csv with the columns path and label")
    given = parser.parse_args()
    config = config_of(given.run)
    opened = open_again(Provenance.read(given.run), config)
    labels = (
        opened.labels if given.labels is None else read_labels(given.labels, opened.images.names, opened.images.root)[0]
    )
    if labels is None:
        raise UserError(f"{given.run}: its images have no labels of their own; give them with --labels FILE")
    _, branches = embeddings(model_of(given.run), opened.images.images, branches=BRANCHES)
    scored = labels >= 0
    print(f"{'':8} directions     kNN  k-means")
    for name, found in branches.items():
        unit = normalize(torch.from_numpy(found).float(), dim=1)
        clusters = spherical_kmeans(unit, config.n_clusters, seed=0)[1].numpy()
        knn, acc = knn_accuracy(unit.numpy()[scored], labels[scored]), accuracy(labels[scored], clusters[scored])
        print(f"{name:8} {effective_dimensions(unit):10.1f}{knn:8.3f}{acc:9.3f}")


if __name__ == "__main__":
    plainly(main)
