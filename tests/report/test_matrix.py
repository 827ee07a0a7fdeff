"""The tables of shares: the most mixed-up pairs, and clusters matched with classes as scikit-learn counts them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import confusion_matrix
from synthetic_run import Run, make_run

from concurl.errors import UserError
from concurl.report.facts import RunFacts
from concurl.report.matrix import MAX_SIDE, disagreement, matched, mixed_up, mixed_with, votes


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFacts, Run]:
    run = make_run(tmp_path_factory.mktemp("m") / "r")
    return RunFacts.read(run.folder), run


def test_pairs_come_by_votes_with_the_larger_share_first() -> None:
    shares = np.array([[0.9, 0.1, 0.0], [0.3, 0.6, 0.1], [0.002, 0.008, 0.99]])
    pairs = mixed_up(shares)
    assert [(p.one, p.other, p.there, p.back) for p in pairs] == [(1, 0, 0.3, 0.1), (1, 2, 0.1, 0.008)]


def test_each_cluster_has_those_that_take_its_votes() -> None:
    shares = np.array([[0.5, 0.04, 0.26, 0.2], [0, 1, 0, 0], [0.05, 0.02, 0.9, 0.03], [0.3, 0.3, 0.3, 0.1]])
    assert mixed_with(shares) == [[(2, 0.26), (3, 0.2)], [], [(0, 0.05)], [(0, 0.3), (1, 0.3)]]


def test_votes_of_another_shape_are_not_shown(given: tuple[RunFacts, Run]) -> None:
    facts, _ = given
    assert votes(facts) is not None
    for wrong in (None, [[1.0]], "no", [[1, 2], [3]]):
        assert votes(replace(facts, summary={"ensemble_confusion": wrong})) is None


def test_a_large_table_keeps_the_most_mixed_up(given: tuple[RunFacts, Run]) -> None:
    facts = replace(given[0], names=tuple(f"c{i}" for i in range(50)))
    shares = np.eye(50)
    shares[45, 3] = shares[7, 49] = 0.4
    shares[8:44, 8:44] += 0.02  # a little of each here: more in all, and yet no pair
    table = disagreement(facts, shares)
    assert len(table.rows) == MAX_SIDE
    assert table.rows_left_out == table.columns_left_out == 20
    assert [facts.names[c] for c in table.clusters] == list(table.rows)
    assert {"c45", "c3", "c7", "c49"} <= set(table.rows)
    assert table.shares[table.rows.index("c45"), table.columns.index("c3")] == 0.4


def test_the_matched_matrix_counts_what_scikit_learn_counts(given: tuple[RunFacts, Run]) -> None:
    facts, run = given
    labels = (run.labels + 2) % 6  # class j sits in cluster j - 2: the matching must turn it back
    found = matched(facts, labels, [f"kind {j}" for j in range(6)])
    plain = confusion_matrix(facts.cluster, labels, labels=range(6))
    for i, row in enumerate(found.matrix.rows):
        for j, column in enumerate(found.matrix.columns):
            assert found.matrix.counts[i, j] == plain[facts.names.index(row), int(column[-1])]
    for row, column in zip(found.matrix.rows, found.matrix.columns, strict=True):
        assert int(column[-1]) == (facts.names.index(row) + 2) % 6
    assert found.scores["acc"] == pytest.approx((facts.cluster == run.labels).mean())
    np.testing.assert_allclose(found.matrix.shares.sum(axis=1), 1)
    rng = np.random.default_rng(1)
    dice = []
    for _ in range(100):
        table = confusion_matrix(facts.cluster, rng.permutation(labels), labels=range(6))
        dice.append(table[linear_sum_assignment(-table)].sum() / len(labels))
    assert found.chance == pytest.approx(np.mean(dice), abs=0.02)


def test_images_without_a_label_are_left_out(given: tuple[RunFacts, Run]) -> None:
    facts, run = given
    labels = np.where(np.arange(180) < 30, -1, run.labels)
    found = matched(facts, labels, None)
    assert found.unlabelled == 30
    assert found.matrix.counts.sum() == 150
    assert found.matrix.columns[0].startswith("Class ")
    assert found.left_over == 0
    assert found.without_cluster == 0
    assert matched(facts, run.labels % 4, None).left_over == 2  # six clusters, four classes


def test_more_classes_than_clusters_are_told_of(given: tuple[RunFacts, Run]) -> None:
    found = matched(given[0], np.arange(180) % 40, None)
    assert (found.left_over, found.without_cluster) == (0, 34)
    assert (found.matrix.rows_left_out, found.matrix.columns_left_out) == (0, 40 - MAX_SIDE)


@pytest.mark.parametrize(
    ("labels", "message"), [(np.zeros(3, int), "3.*180 images"), (np.full(180, -1), "none is 0 or more")]
)
def test_labels_that_do_not_fit_are_refused(given: tuple[RunFacts, Run], labels: np.ndarray, message: str) -> None:
    with pytest.raises(UserError, match=message):
        matched(given[0], labels, None)
