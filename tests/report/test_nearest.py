"""The nearest other cluster is the one whose mean points most nearly the image's way, and never the image's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic_run import make_run

from concurl.report.facts import RunFacts
from concurl.report.nearest import UNKNOWN, next_clusters


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> RunFacts:
    return RunFacts.read(make_run(tmp_path_factory.mktemp("n") / "r", n=60, k=4).folder)


def test_each_images_nearest_other_cluster(facts: RunFacts) -> None:
    rows = np.array([7, 3, 41])
    z = facts.embeddings
    for row, found in zip(rows, next_clusters(facts, rows), strict=True):
        angle = {}
        for cluster in set(range(4)) - {int(facts.cluster[row])}:
            mean = z[facts.cluster == cluster].mean(axis=0)
            angle[cluster] = float(z[row] @ mean / np.linalg.norm(mean))
        assert found == max(angle, key=angle.__getitem__)


def test_an_empty_cluster_is_nobodys_nearest(facts: RunFacts) -> None:
    fewer = replace(facts, names=("a", "b", "c", "d", "e"), cluster=np.where(facts.cluster == 2, 0, 1))
    everyone = np.arange(60)
    assert (next_clusters(fewer, everyone) == 1 - fewer.cluster).all()


def test_what_cannot_be_known_is_not_guessed(facts: RunFacts) -> None:
    rows = np.arange(60)
    alone = replace(facts, cluster=np.zeros(60, dtype=np.int64))
    assert (next_clusters(alone, rows) == UNKNOWN).all()
    assert (next_clusters(replace(facts, embeddings=None), rows) == UNKNOWN).all()
    damaged = np.array(facts.embeddings)
    damaged[5] = np.nan
    found = next_clusters(replace(facts, embeddings=damaged), rows)
    assert found[5] == UNKNOWN
    assert (found[facts.cluster == facts.cluster[5]] != UNKNOWN).any()
