"""Spherical k-means: against scikit-learn on unit vectors, and where k-means usually breaks; balanced, it does not there."""

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score
from torch.nn.functional import normalize

from concurl.objective import kmeans
from concurl.objective.kmeans import balanced_kmeans, spherical_kmeans


def blobs(k, per_cluster, dim=10, spread=0.05, seed=0):
    generator = torch.Generator().manual_seed(seed)
    centres = torch.linalg.qr(torch.randn(dim, dim, generator=generator))[0][:k]
    truth = torch.arange(k).repeat_interleave(per_cluster)
    x = centres[truth] + spread * torch.randn(len(truth), dim, generator=generator)
    order = torch.randperm(len(truth), generator=generator)
    return x[order] * (1 + 9 * torch.rand(len(truth), 1, generator=generator)), truth[order]


def cosine_sum(x, labels):
    """The objective of a partition: the cosines of all points with their cluster's mean direction."""
    x = normalize(torch.as_tensor(x).double(), dim=1)
    return sum(float(x[labels == k].sum(0).norm()) for k in np.unique(labels))


@pytest.mark.parametrize("k", [1, 2, 6, 10])
def test_recovers_separated_clusters_whatever_their_lengths(k):
    x, truth = blobs(k, 30)
    centres, labels = spherical_kmeans(x, k, seed=0)
    assert centres.shape == (k, 10)
    assert adjusted_rand_score(truth, labels) == 1
    for cluster in range(k):  # a centre is the mean direction of its members
        mean = normalize(x[labels == cluster], dim=1).sum(0)
        torch.testing.assert_close(centres[cluster], mean / mean.norm(), rtol=0, atol=1e-5)


def test_is_as_good_as_scikit_learn_on_digits():
    x = torch.tensor(load_digits().data, dtype=torch.float32)
    centres, labels = spherical_kmeans(x, 10, seed=0)
    unit = normalize(x, dim=1).numpy()
    theirs = max(cosine_sum(x, KMeans(10, n_init=1, random_state=seed).fit_predict(unit)) for seed in range(3))
    assert cosine_sum(x, labels.numpy()) >= 0.99 * theirs
    similarity = unit @ centres.numpy().T
    np.testing.assert_allclose(similarity[np.arange(len(x)), labels], similarity.max(1), rtol=0, atol=1e-6)
    np.testing.assert_allclose(centres.norm(dim=1), 1, rtol=0, atol=1e-6)


def test_more_restarts_are_never_worse():
    x = torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
    found = [cosine_sum(x, spherical_kmeans(x, 12, seed=3, restarts=n)[1].numpy()) for n in (1, 3, 10)]
    assert found[0] <= found[1] + 1e-4 <= found[2] + 2e-4
    assert found[2] > found[0]
    assert cosine_sum(x, spherical_kmeans(x, 12, seed=3)[1].numpy()) == found[2]  # ten, unless told otherwise


def test_the_seed_alone_decides():
    x = torch.randn(150, 4, generator=torch.Generator().manual_seed(0))
    first = spherical_kmeans(x, 9, seed=5, restarts=1)
    torch.manual_seed(123)
    again = spherical_kmeans(x, 9, seed=5, restarts=1)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(spherical_kmeans(x, 9, seed=6, restarts=1)[1], first[1])


def test_it_ends_only_where_nothing_moves_any_more():
    """Where clusters overlap a few rounds are not enough."""
    x = normalize(torch.randn(500, 5, generator=torch.Generator().manual_seed(0)), dim=1)
    centres, labels = spherical_kmeans(x, 8, seed=0, restarts=1)
    means = torch.stack([x[labels == cluster].sum(0) for cluster in range(8)])
    torch.testing.assert_close(centres, normalize(means, dim=1), rtol=0, atol=1e-5)


def test_cut_short_its_labels_are_still_those_of_its_centres():
    x = normalize(torch.randn(500, 5, generator=torch.Generator().manual_seed(0)), dim=1)
    centres, labels = spherical_kmeans(x, 8, seed=0, restarts=1, iterations=1)
    assert torch.equal(labels, (x @ centres.t()).argmax(1))


@pytest.mark.parametrize("seed", range(5))
def test_the_start_takes_no_point_twice_while_others_are_left(seed):
    starts = kmeans._plus_plus(torch.eye(9), 9, torch.Generator().manual_seed(seed))
    assert sorted(starts.argmax(1).tolist()) == list(range(9))


def test_the_start_draws_each_point_in_proportion_to_its_squared_distance():
    """Pairs of starts among four points, over many seeds: the first is any of them, whatever the second comes to be."""
    angles = torch.tensor([0.0, 0.4, 1.3, 2.9])
    x, runs = torch.stack([angles.cos(), angles.sin()], dim=1), 2_000
    counts = torch.zeros(4, 4)
    for seed in range(runs):
        starts = kmeans._plus_plus(x, 2, torch.Generator().manual_seed(seed))
        first, second = (starts @ x.t()).argmax(1)
        counts[first, second] += 1
    squared = torch.cdist(x, x).square()
    expected = squared / squared.sum(1, keepdim=True) / 4
    deviation = (expected * (1 - expected) / runs).sqrt()
    assert ((counts / runs - expected).abs() <= 5 * deviation + 1e-9).all()


def test_as_many_clusters_as_points():
    x = torch.randn(12, 5, generator=torch.Generator().manual_seed(0))
    centres, labels = spherical_kmeans(x, 12, seed=0)
    assert sorted(labels.tolist()) == list(range(12))
    torch.testing.assert_close(centres[labels], normalize(x, dim=1), rtol=0, atol=1e-6)


def test_fewer_distinct_points_than_clusters():
    distinct = torch.eye(3)
    x = distinct.repeat(10, 1)
    centres, labels = spherical_kmeans(x, 7, seed=0)
    assert centres.isfinite().all()
    torch.testing.assert_close(centres.norm(dim=1), torch.ones(7))
    torch.testing.assert_close((x * centres[labels]).sum(1), torch.ones(30))  # each point on its own centre
    assert len(labels.unique()) == 3
    for point in range(3):
        assert len(labels[point::3].unique()) == 1  # equal points, equal labels


def test_an_empty_cluster_is_given_points(monkeypatch):
    x, truth = blobs(3, 20)
    monkeypatch.setattr(kmeans, "_plus_plus", lambda x, k, generator: x[:1].repeat(k, 1))  # k times the same start
    _, labels = spherical_kmeans(x, 3, seed=0, restarts=1)
    assert torch.bincount(labels, minlength=3).min() > 0
    assert adjusted_rand_score(truth, labels) > 0.4
    _, centres, _ = kmeans._lloyd(unit := normalize(x, dim=1), unit[:1].repeat(3, 1), 1)
    worst = (unit @ unit[0]).argsort()[:2]  # those that the first cluster serves worst
    torch.testing.assert_close(centres[1:], unit[worst])


def test_more_clusters_than_points_is_refused():
    with pytest.raises(ValueError, match=r"n_clusters=4.*3 points"):
        spherical_kmeans(torch.randn(3, 2), 4, seed=0)


def test_no_gradient_and_no_change_of_the_input():
    x = torch.randn(20, 3).requires_grad_()
    before = x.detach().clone()
    centres, _ = spherical_kmeans(x, 2, seed=0)
    assert not centres.requires_grad
    assert not balanced_kmeans(x, centres, 0.05)[0].requires_grad
    assert torch.equal(x.detach(), before)


@pytest.mark.parametrize("seed", range(3))
def test_balanced_leaves_a_wide_cluster_what_reaches_into_a_narrow_one(seed):
    generator = torch.Generator().manual_seed(seed)
    centres = torch.tensor([[1.0, 0, 0, 0, 0, 0], [0.8, 0.6, 0, 0, 0, 0]])
    truth = torch.arange(2).repeat(300)
    x = centres[truth] + torch.tensor([0.05, 0.35])[truth, None] * torch.randn(600, 6, generator=generator)
    centres, labels = spherical_kmeans(x, 2, seed=0)
    balanced, found = balanced_kmeans(x, centres, 0.05)
    assert np.bincount(found).max() < 345 < 355 < np.bincount(labels).max()
    assert adjusted_rand_score(truth, found) > adjusted_rand_score(truth, labels) + 0.15
    assert np.bincount(balanced_kmeans(x, centres, 0.05, balance=0)[1]).max() > 345  # nobody asked for equal sizes
    torch.testing.assert_close(balanced.norm(dim=1), torch.ones(2))


def test_balanced_ends_at_one_place_from_many_starts():
    x, _ = blobs(6, 50, spread=0.3)
    starts = [spherical_kmeans(x, 6, seed=seed, restarts=1, iterations=1)[0] for seed in range(6)]
    first, *others = [balanced_kmeans(x, start, 0.05)[1] for start in starts]
    assert [adjusted_rand_score(first, other) for other in others] == [1] * 5
    plain = [spherical_kmeans(x, 6, seed=seed, restarts=1)[1] for seed in range(6)]
    assert min(adjusted_rand_score(plain[0], other) for other in plain[1:]) < 1


def test_balanced_where_points_are_few_or_equal():
    x = normalize(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), dim=1)
    _, labels = balanced_kmeans(x, x, 0.01)
    assert labels.tolist() == [0, 1, 2, 3, 4]
    centres, _ = balanced_kmeans(torch.ones(8, 3), torch.eye(3), 0.05)
    assert torch.isfinite(centres).all()


def test_balanced_keeps_centres_apart_where_points_are_loose():
    """All within a narrow cone: at this epsilon every code is nearly uniform, and every mean the same."""
    generator = torch.Generator().manual_seed(0)
    x = torch.eye(8)[0] + 0.05 * torch.randn(300, 8, generator=generator)
    centres, _ = spherical_kmeans(x, 6, seed=0)
    found, labels = balanced_kmeans(x, centres, 0.05)
    assert len(torch.unique(found.round(decimals=3), dim=0)) == 6
    assert min(np.bincount(labels, minlength=6)) > 25
