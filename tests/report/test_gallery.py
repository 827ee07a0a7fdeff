"""The galleries' images, against a plain loop over the rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic_run import make_run

from concurl.report.facts import RunFacts
from concurl.report.gallery import MAX_FACES, MAX_GALLERIES, faces, galleries


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> RunFacts:
    return RunFacts.read(make_run(tmp_path_factory.mktemp("g") / "r").folder)


def test_the_lenses_show_what_they_say(facts: RunFacts) -> None:
    for card in galleries(facts):
        members = [i for i in range(180) if facts.cluster[i] == card.cluster]
        mean = np.mean([facts.embeddings[i] for i in members], axis=0)
        nearest = sorted(members, key=lambda i: -float(facts.embeddings[i] @ mean))
        unsure = sorted(members, key=lambda i: (facts.confidence[i], facts.margin[i], facts.agreement[i]))
        assert card.rows["typical"] == nearest[:12]
        assert card.rows["unsure"] == unsure[:12]
        assert set(card.rows["random"]) <= set(members)
        assert len(set(card.rows["random"])) == min(12, len(members))
        assert card.size == len(members)
        assert card.confidence == pytest.approx(sum(facts.confidence[i] for i in members) / len(members))
        assert card.unsure == sum(bool(facts.unsure[i]) for i in members)


def test_the_random_sample_is_the_same_each_time(facts: RunFacts) -> None:
    assert [card.rows for card in galleries(facts)] == [card.rows for card in galleries(facts)]


def test_without_embeddings_those_nearest_to_the_prototype_are_typical(facts: RunFacts) -> None:
    card = galleries(replace(facts, embeddings=None))[0]
    assert facts.outlier[card.rows["typical"][0]] == facts.outlier[facts.cluster == 0].min()


def test_hundreds_of_clusters_share_the_room_and_the_largest_get_it(tmp_path: Path) -> None:
    facts = RunFacts.read(make_run(tmp_path / "r", n=1500, k=150).folder)
    cards = galleries(facts)
    pictured = [card for card in cards if card.rows["typical"]]
    assert len(pictured) == MAX_GALLERIES
    assert min(card.size for card in pictured) >= max(card.size for card in cards if not card.rows["typical"])
    assert sum(len(rows) for card in cards for rows in card.rows.values()) <= 2400


def test_at_a_glance_the_largest_clusters_are_seen_in_their_order(tmp_path: Path) -> None:
    names = [f"{i}.jpg" for i in range(200)]
    run = make_run(tmp_path / "r", n=200, k=20, names=names)
    found = galleries(RunFacts.read(run.folder))
    seen = faces(found)
    assert len(seen) == MAX_FACES
    clusters = [card.cluster for card in seen]
    assert clusters == sorted(clusters)
    assert min(card.size for card in seen) >= max(card.size for card in found if card.cluster not in clusters)
