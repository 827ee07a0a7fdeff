"""The look at a run: what it says, against plain computations on the same networks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from concurl.network.embed import embed
from concurl.network.model import Model
from concurl.objective.ensemble import diversity, draw_transforms
from concurl.objective.sinkhorn import sinkhorn
from concurl.training import monitor as monitoring
from concurl.training.monitor import Monitor, effective_dimensions
from ranks import pictures


def look(config, *, clustering=True, judge=None, autocast=None):
    """What is seen of 40 of the 100 pictures; and the monitor, its model and their unit z and v."""
    torch.manual_seed(0)
    model, images = Model(config), pictures()
    A = draw_transforms("projection", config.n_transforms, config.embedding_dim, config.projection_dim, 0)
    monitor = Monitor(config, images, A, autocast, judge)
    with torch.no_grad():  # a target that is not the online branch
        model.target.projector[3].weight.add_(torch.randn(12, 16))
        model.target.cluster_head[3].weight.add_(torch.randn(8, 16))
    parts = list(embed(model, images[monitor.ids], image_size=8, sobel=config.sobel, autocast=autocast))
    z, v = torch.cat([part["online"].z for part in parts]), torch.cat([part["target"].v for part in parts])
    lengths = torch.tensor([10, 1, 1, -1])[:, None]  # only directions count, and the last one lies on the far side
    model.prototypes.data.copy_(lengths * z[:4])
    return monitor.look(model, clustering), monitor, model, normalize(z, dim=1), normalize(v, dim=1)


@pytest.fixture
def config(tiny):
    return tiny(monitor_images=40)


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_the_spread_is_that_of_the_targets_directions(config, autocast):
    seen, monitor, _, _, v = look(config.replace(sobel=True), clustering=False, autocast=autocast)
    assert len(set(monitor.ids)) == 40
    v = v.double().numpy()
    variances = np.linalg.svd(v - v.mean(0), compute_uv=False) ** 2
    assert seen == {
        "feature_std": pytest.approx(np.sqrt(12) * np.std(v, axis=0, ddof=1).mean(), rel=1e-5),
        "feature_dimensions": pytest.approx(variances.sum() ** 2 / (variances**2).sum(), rel=1e-4),
    }


def test_before_clustering_the_online_branch_need_not_look(config, monkeypatch):
    asked = []
    monkeypatch.setattr(monitoring, "embed", lambda *of, branches, **how: asked.append(branches) or embed(*of, **how))
    for clustering in (False, True):
        look(config, clustering=clustering)
    assert [set(branches) for branches in asked] == [{"target"}, {"target", "online"}]


def test_directions_are_counted_as_one_would() -> None:
    corners = torch.eye(5).repeat(6, 1)  # five equal clusters, as far from each other as can be
    plane = (
        torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]) @ torch.randn(2, 2).svd().U @ torch.eye(2, 50)
    )
    assert effective_dimensions(corners) == pytest.approx(4)
    assert effective_dimensions(corners.repeat(1, 20) + 3) == pytest.approx(
        4
    )  # wherever they lie; more columns than rows
    assert effective_dimensions(plane) == pytest.approx(2)
    assert effective_dimensions(torch.ones(7, 3)) == 0
    assert effective_dimensions(torch.nn.functional.normalize(torch.rand(1, 64)).repeat(50, 1)) < 1e-6


def test_clusters_are_counted_without_balance_and_members_are_compared(config):
    seen, monitor, model, z, _ = look(config)
    C = model.prototypes.detach()
    nearest = (z @ normalize(C, dim=1).t()).argmax(1)
    assert seen["cluster_sizes"] == [int((nearest == k).sum()) for k in range(4)]
    assert seen["cluster_sizes"][3] == 0
    votes = [(normalize(z @ a.t(), dim=1) @ normalize(C @ a.t(), dim=1).t()).argmax(1) for a in monitor.A]
    assert (seen["diversity_mean"], seen["diversity_std"]) == diversity(torch.stack(votes), 4)
    assert 0 < seen["diversity_mean"] < 1


def test_images_are_copied_a_few_at_a_time(config):
    """The set may be far larger than the memory."""
    asked = []

    class Mapped:
        dtype, ndim, shape = np.uint8, 4, pictures().shape

        def __getitem__(self, ids):
            asked.append(len(ids))
            return pictures()[ids]

    _, monitor, model, *_ = look(config)
    both = ("online", "target")
    want = monitor.embeddings(model, np.arange(100), both)
    monitor.images = Mapped()
    for branch, got in monitor.embeddings(model, np.arange(100), both).items():
        assert all(map(torch.equal, got[:3], want[branch][:3]))  # y, v and z
    assert asked == [32, 32, 32, 4]  # chunks of an embedding pass


def test_members_are_asked_one_after_the_other(config, monkeypatch):
    """All at once, 100 members would hold 4 GiB for 4,096 images and 1,000 clusters."""
    asked = []
    ask = monitoring.ensemble_log_assignments
    monkeypatch.setattr(
        monitoring, "ensemble_log_assignments", lambda z, C, A, tau: asked.append(len(A)) or ask(z, C, A, tau)
    )
    look(config)
    assert asked == [1] * config.n_transforms


def test_one_member_alone_neither_agrees_nor_differs(config):
    """An NMI of 1 from the start on would be told as a consensus loss that teaches nothing."""
    seen, *_ = look(config.replace(n_transforms=1))
    assert seen.keys() == {"feature_std", "feature_dimensions", "cluster_sizes"}


@pytest.mark.parametrize("balance", [1, 0.3])
def test_the_judge_is_asked_about_the_codes_of_these_images(config, balance):
    asked = []
    seen, monitor, model, z, _ = look(
        config.replace(balance=balance), judge=lambda *of: asked.append(of) or {"acc": 0.5}
    )
    ((ids, clusters),) = asked
    np.testing.assert_array_equal(ids, monitor.ids)
    scores = z @ normalize(model.prototypes.detach(), dim=1).t()
    np.testing.assert_array_equal(clusters, sinkhorn(scores, config.epsilon, 50, balance=balance)[0].argmax(1))
    other = sinkhorn(scores, config.epsilon, 50, balance=1.3 - balance)[0].argmax(1)
    assert not np.array_equal(clusters, other)
    assert seen["cluster_sizes"] != np.bincount(clusters, minlength=4).tolist()
    assert seen["acc"] == 0.5
