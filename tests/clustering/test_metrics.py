"""ACC, NMI, ARI: against scikit-learn, brute force, and the appendix's formulas written out."""

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix

from concurl.clustering.metrics import accuracy, ari, contingency, match_clusters, nmi, scores

RNG = np.random.default_rng(0)
CASES = {
    "as many clusters as classes": (RNG.integers(0, 4, 60), RNG.integers(0, 4, 60)),
    "nearly right": (np.arange(60) % 4, np.where(RNG.random(60) < 0.2, 0, np.arange(60) % 4)),
    "more clusters": (RNG.integers(0, 3, 60), RNG.integers(0, 6, 60)),
    "fewer clusters": (RNG.integers(0, 6, 60), RNG.integers(0, 2, 60)),
    "a single cluster": (RNG.integers(0, 5, 60), np.zeros(60, dtype=int)),
    "a single class": (np.zeros(60, dtype=int), RNG.integers(0, 5, 60)),
    "both single": (np.zeros(60, dtype=int), np.full(60, 7)),
    "all singletons": (np.arange(12), np.arange(12)[::-1]),
    "one image": (np.array([3]), np.array([0])),
    "gaps and negatives": (RNG.choice([-5, 0, 99], 60), RNG.choice([7, 1000], 60)),
}
labelled = st.integers(1, 40).flatmap(
    lambda n: st.tuples(*(st.lists(st.integers(0, 5), min_size=n, max_size=n) for _ in range(2)))
)


def plain_accuracy(truth, clusters):
    """The share of hits under the best of all one-to-one maps from clusters to classes, by trying every one."""
    names, classes = np.unique(clusters).tolist(), np.unique(truth).tolist()
    classes += [None] * max(0, len(names) - len(classes))  # a cluster may stay without a class
    return max(
        np.mean([dict(zip(names, chosen, strict=True))[c] == t for t, c in zip(truth, clusters, strict=True)])
        for chosen in set(itertools.permutations(classes, len(names)))
    )


def plain_nmi(truth, clusters):
    """MI(U, V) / sqrt(MI(U, U) MI(V, V)) with sets, as the appendix defines it."""

    def mi(a, b):
        n, total = len(a), 0.0
        for i, j in itertools.product(set(a), set(b)):
            u, v = {x for x in range(n) if a[x] == i}, {x for x in range(n) if b[x] == j}
            if u & v:
                total += len(u & v) / n * math.log(n * len(u & v) / (len(u) * len(v)))
        return total

    a, b = list(truth), list(clusters)
    return mi(a, b) / math.sqrt(mi(a, a) * mi(b, b))


def rand_index(a, b):
    """(a + b) / (n choose 2), over all pairs."""
    pairs = list(itertools.combinations(range(len(a)), 2))
    return sum((a[i] == a[j]) == (b[i] == b[j]) for i, j in pairs) / len(pairs)


@pytest.mark.parametrize("case", CASES)
def test_equal_scikit_learn(case):
    truth, clusters = CASES[case]
    assert nmi(truth, clusters) == pytest.approx(
        normalized_mutual_info_score(truth, clusters, average_method="geometric"), abs=1e-9
    )
    assert ari(truth, clusters) == pytest.approx(adjusted_rand_score(truth, clusters), abs=1e-12)
    np.testing.assert_array_equal(contingency(truth, clusters), contingency_matrix(truth, clusters))


@given(labelled)
@example(([0] * 60, [*range(10)] * 6))
@example(([0] * 18 + [1] * 18 + [2] * 18, [*range(6)] * 9))  # independent: rounding would take the NMI below 0
@example(([0] + [1] * 5 + [2] * 5, [0] + [1] * 5 + [2] * 5))  # equal: and above 1
def test_equal_scikit_learn_for_any_labels(pair):
    truth, clusters = pair
    assert nmi(truth, clusters) == pytest.approx(
        normalized_mutual_info_score(truth, clusters, average_method="geometric"), abs=1e-9
    )
    assert nmi(truth, clusters) == pytest.approx(nmi(clusters, truth), abs=1e-12)
    assert ari(truth, clusters) == pytest.approx(adjusted_rand_score(truth, clusters), abs=1e-12)
    assert 0 <= nmi(truth, clusters) <= 1
    assert max(np.bincount(truth)) / (len(truth) * len(set(clusters))) <= accuracy(truth, clusters) <= 1


def test_a_single_cluster_has_no_information_whatever_the_sizes():
    # the shares of the other side need not sum to 1 exactly: an entropy of -1e-16 has no root
    for seed in range(300):
        clusters = np.random.default_rng(seed).integers(0, 10, 70)
        assert nmi(np.zeros(70, dtype=int), clusters) == nmi(clusters, np.zeros(70, dtype=int)) == 0


@pytest.mark.parametrize("case", ["as many clusters as classes", "nearly right", "more clusters", "fewer clusters"])
def test_equal_the_appendix(case):
    truth, clusters = CASES[case]
    assert accuracy(truth, clusters) == pytest.approx(plain_accuracy(truth, clusters), abs=1e-12)
    assert nmi(truth, clusters) == pytest.approx(plain_nmi(truth, clusters), abs=1e-12)


@given(labelled)
def test_accuracy_equals_trying_all_matchings(pair):
    truth, clusters = (np.array(x) % 4 for x in pair)
    assert accuracy(truth, clusters) == pytest.approx(plain_accuracy(truth, clusters), abs=1e-12)


@pytest.mark.parametrize(
    ("a", "b"), [("000111", "001122"), ("012012", "011222"), ("000011", "010101"), ("001122", "001122")]
)
def test_ari_is_the_rand_index_corrected_by_its_mean_over_all_shuffles(a, b):
    expected = np.mean([rand_index(a, shuffled) for shuffled in itertools.permutations(b)])
    want = (rand_index(a, b) - expected) / (1 - expected)
    assert ari(list(a), list(b)) == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_no_naming_of_four_clusters_changes_a_score(order):
    truth = np.arange(80) % 4
    clusters = CASES["as many clusters as classes"][1]
    clusters = np.where(np.arange(80) < 50, truth, np.resize(clusters, 80))
    named = np.array(order)[clusters]
    assert scores(truth, named) == pytest.approx(scores(truth, clusters), abs=1e-12)
    assert scores(np.array(order)[truth], clusters) == pytest.approx(scores(truth, clusters), abs=1e-12)
    assert scores(truth, np.array(order)[truth]) == pytest.approx({"acc": 1, "nmi": 1, "ari": 1}, abs=1e-12)


def test_clusters_without_a_class_count_as_wrong():
    truth = [0, 0, 0, 0, 1, 1]
    assert accuracy(truth, [0, 0, 0, 5, 1, 1]) == pytest.approx(5 / 6)  # cluster 5 has no class left
    assert accuracy(truth, [0] * 6) == pytest.approx(4 / 6)  # class 1 has no cluster


@pytest.mark.parametrize("case", [case for case in CASES if case != "one image"])
def test_matching_gives_the_accuracy(case):
    truth, clusters = CASES[case]
    match = match_clusters(truth, clusters)
    assert len(match) == len(set(match.values())) == min(len(set(truth)), len(set(clusters)))
    assert set(match) <= set(clusters.tolist())
    assert set(match.values()) <= set(truth.tolist())
    hits = [match.get(c) == t for t, c in zip(truth.tolist(), clusters.tolist(), strict=True)]
    assert np.mean(hits) == pytest.approx(accuracy(truth, clusters), abs=1e-12)


def test_ari_of_many_images_does_not_overflow():
    truth = np.repeat(np.arange(3), 1_000_000)
    assert ari(truth, np.roll(truth, 1000)) == pytest.approx(adjusted_rand_score(truth, np.roll(truth, 1000)), abs=1e-9)


@pytest.mark.parametrize(
    ("truth", "clusters"), [([], []), ([0, 1], [0]), ([[0, 1]], [[0, 1]])], ids=["none", "unequal", "two-dimensional"]
)
def test_what_are_no_two_lists_is_refused(truth, clusters):
    for score in (accuracy, nmi, ari):
        with pytest.raises(ValueError, match="two equal, non-empty lists"):
            score(truth, clusters)


def test_who_needs_no_scores_does_not_wait_for_scipy():
    check = "import sys, concurl.runs.run; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0
