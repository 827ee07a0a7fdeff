"""The loop: what clustering begins with, and what an epoch's row holds, against plain computations on its own parts."""

from __future__ import annotations

import copy
import threading
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from concurl.data.storage.feed import Streaming
from concurl.errors import UserError
from concurl.network.embed import embed
from concurl.network.encoder import build_encoder
from concurl.objective.sinkhorn import sinkhorn
from concurl.training import cluster_start
from concurl.training.divergence import Diverged
from concurl.training.trainer import CHECKPOINTS, FEATURES, Trainer
from ranks import Stop, pictures


def watched(config, each=lambda trainer, clustering: None):
    """A finished training; `each` saw it before every step. And its losses, step by step."""
    trainer = Trainer(config, pictures())
    take, losses = trainer.take_step, []

    def noted(*arguments):
        each(trainer, arguments[-1])
        losses.append(take(*arguments))
        return losses[-1]

    trainer.take_step = noted
    trainer.fit()
    return trainer, torch.stack(losses)


def as_clustering_began(config):
    """The model and the queue that the first step of clustering met, and the prototypes that were drawn."""
    met = []

    def keep(trainer, clustering):
        if clustering:
            met.append((copy.deepcopy(trainer.model), trainer.queue.entries.clone()))
            raise Stop

    with suppress(Stop):
        watched(config, keep)
    return *met[0], Trainer(config, pictures()).model.prototypes.detach()


def unit_z(model, branch):
    parts = list(embed(model, pictures(), image_size=8, branches=[branch]))
    return normalize(torch.cat([part[branch].z for part in parts]), dim=1)


def same(module, other):
    return all(map(torch.equal, module.state_dict().values(), other.state_dict().values()))


OTHER = {"online": "target", "target": "online"}


@pytest.mark.parametrize("branch", OTHER)
def test_the_head_begins_as_a_copy_of_its_own_branchs_projector(config, branch):
    model, *_ = as_clustering_began(config)
    head = getattr(model, branch).cluster_head
    assert same(head, getattr(model, branch).projector)
    assert not same(head, getattr(model, OTHER[branch]).projector)
    model, *_ = as_clustering_began(config.replace(head_init="random"))
    assert not same(getattr(model, branch).cluster_head, getattr(model, branch).projector)


@pytest.mark.parametrize("queue_size", [50, 0])
def test_prototypes_begin_as_the_means_of_the_targets_clusters(config, queue_size):
    """What k-means ends with: each centre is the mean of the images that are nearest to it."""
    model, _, drawn = as_clustering_began(config.replace(queue_size=queue_size))
    C = model.prototypes.detach()

    def means(branch):
        z = unit_z(model, branch)
        nearest = (z @ C.t()).argmax(1)
        return normalize(torch.stack([z[nearest == k].sum(0) for k in range(len(C))]), dim=1)

    torch.testing.assert_close(C, means("target"), atol=1e-5, rtol=0)
    assert (C - means("online")).abs().max() > 1e-3
    model, *_ = as_clustering_began(config.replace(prototype_init="random"))
    assert torch.equal(model.prototypes, drawn)


def test_balanced_prototypes_begin_as_the_means_that_the_targets_codes_weigh(config):
    model, *_ = as_clustering_began(config.replace(prototype_init="balanced"))
    z, C = unit_z(model, "target"), model.prototypes.detach()

    def means(halvings):  # features as young as these are loose: see balanced_kmeans
        q, _ = sinkhorn(z @ C.t(), config.epsilon / 2**halvings, 10)
        return normalize(q.t() @ z, dim=1)

    assert min(float((C - means(halvings)).abs().max()) for halvings in range(9)) < 1e-3
    plain = as_clustering_began(config)[0].prototypes.detach()
    assert (C - plain).abs().max() > 5e-3


def test_prototypes_begin_as_balanced_as_the_codes_will_be(config, monkeypatch):
    asked = []
    monkeypatch.setattr(cluster_start, "balanced_kmeans", lambda x, centres, *how: asked.append(how) or (centres, None))
    as_clustering_began(config.replace(prototype_init="balanced", epsilon=0.07, balance=0.4))
    assert asked == [(0.07, 0.4)]


def test_of_many_images_prototypes_begin_from_a_sample(config, monkeypatch):
    asked = []
    kmeans = cluster_start.spherical_kmeans
    monkeypatch.setattr(cluster_start, "IMAGES", 60)
    monkeypatch.setattr(
        cluster_start, "spherical_kmeans", lambda x, k, seed: asked.append((len(x), seed)) or kmeans(x, k, seed=seed)
    )
    as_clustering_began(config.replace(seed=3))
    assert asked == [(60, 3)]


def test_the_sample_holds_as_many_images_as_there_are_clusters(config, monkeypatch):
    """A smaller one k-means would refuse, after most of the training."""
    monkeypatch.setattr(cluster_start, "IMAGES", 3)
    model, *_ = as_clustering_began(config)
    z, C = unit_z(model, "target"), model.prototypes.detach()
    assert len({int(i) for i in (C @ z.t()).argmax(1)}) == len(C) == 4
    torch.testing.assert_close((C @ z.t()).max(1).values, torch.ones(4))  # each begins at an image of its own


@pytest.mark.parametrize("init", ["kmeans", "balanced"])
def test_the_clusters_that_it_begins_with_are_judged_and_told(config, init, caplog):
    asked = []
    judge = lambda ids, found: asked.append((ids, found)) or {"acc": len(asked) / 8}  # noqa: E731
    trainer = Trainer(config.replace(epochs=1, cluster_start=0.2, prototype_init=init), pictures(), judge=judge)
    with caplog.at_level("INFO", logger="concurl"):
        trainer.fit()
    begun = [record.message for record in caplog.records if "where clustering begins" in record.message]
    told = ["k-means where clustering begins: acc 0.125", "balanced k-means where clustering begins: acc 0.250"]
    assert begun == told[: 1 if init == "kmeans" else 2]
    for ids, found in asked[: len(begun)]:
        assert ids.tolist() == list(range(100))
        assert set(found) == set(range(4))


@pytest.mark.parametrize(("branch", "prototypes"), [("online", "kmeans"), ("target", "kmeans"), ("target", "random")])
def test_the_queue_begins_with_embeddings_of_the_codes_branch(config, branch, prototypes):
    model, entries, _ = as_clustering_began(config.replace(codes_from=branch, prototype_init=prototypes))
    z, other = unit_z(model, branch), unit_z(model, OTHER[branch])
    ids = (entries[0] @ z.t()).argmax(1)
    assert len(ids.unique()) == 50
    for view in entries:
        torch.testing.assert_close(view, z[ids], atol=1e-6, rtol=0)
    assert (entries[0] - other[ids]).abs().max() > 1e-3
    # Folders are often sorted by kind: from the queue's first entries on, images of the whole set must be among them.
    assert all((part < 50).any() and (part >= 50).any() for part in ids.split(10))


def test_the_seed_decides_the_weights_and_the_members(config):
    first, again, other = (Trainer(config.replace(seed=seed), pictures()) for seed in (1, 1, 2))
    weights, same, others = (dict(trainer.model.named_parameters()) for trainer in (first, again, other))
    assert all(torch.equal(weights[name], same[name]) for name in weights)
    assert not any(torch.equal(weights[name], others[name]) for name in weights if weights[name].dim() > 1)
    assert torch.equal(first.A, again.A)
    assert not torch.equal(first.A, other.A)


@pytest.mark.parametrize("batch_size", [20, 30])  # of 100 images: all in each epoch, or ten left out, others each time
def test_every_epoch_goes_through_the_images_once_in_an_order_of_its_own(config, batch_size):
    orders = {}
    for seed in (0, 1):
        trainer = Trainer(config.replace(epochs=2, batch_size=batch_size, seed=seed), pictures())
        take, seen = trainer.take_step, []

        def noted(images, ids, *rest, take=take, seen=seen):
            assert torch.equal(images, torch.from_numpy(pictures())[ids])
            seen.append(ids)
            return take(images, ids, *rest)

        trainer.take_step = noted
        trainer.fit()
        assert len(seen) == 2 * (100 // batch_size)
        for epoch, steps in enumerate((seen[: len(seen) // 2], seen[len(seen) // 2 :])):
            orders[seed, epoch] = torch.cat(steps).tolist()
    for order in orders.values():
        assert len(set(order)) == len(order) == 100 // batch_size * batch_size
    assert len(set(map(tuple, orders.values()))) == 4
    assert len(set(map(frozenset, orders.values()))) == (1 if batch_size == 20 else 4)


def test_each_step_is_taken_by_its_number_and_with_its_own_settings(config):
    trainer = Trainer(config.replace(epochs=3, schedule="cosine", warmup=0.2, tau_b_end=1.0), pictures())
    take, numbers, settings = trainer.take_step, [], []

    def noted(images, ids, number, row, clustering):
        numbers.append(int(number))
        settings.append(row)
        return take(images, ids, number, row, clustering)

    trainer.take_step = noted
    trainer.fit()
    assert numbers == list(range(15))
    assert torch.equal(torch.stack(settings), trainer.schedule.table(0, 15))


@pytest.mark.parametrize("start", [0.0, 0.5])  # 0.5: with the fourth step of the second epoch
def test_a_row_holds_the_means_over_its_own_epochs_steps(config, start):
    trainer, losses = watched(config.replace(epochs=3, cluster_start=start))
    for epoch, row in enumerate(trainer.metrics.rows):
        loss, l1, l2, l3 = losses[5 * epoch : 5 * (epoch + 1)].double().numpy().T
        acted = l2 > 0
        assert row["loss"] == pytest.approx(loss.mean(), rel=1e-5)
        assert row["l1"] == pytest.approx(l1.mean(), rel=1e-5)
        for name, values in (("l2", l2), ("l3", l3)):
            assert row[name] == (pytest.approx(values[acted].mean(), rel=1e-5) if acted.any() else None)
    assert (losses[:, 2] > 0).sum() == (15 if start == 0 else 7)


@pytest.mark.parametrize(("weight", "loss"), [("alpha", "l1"), ("beta", "l2"), ("gamma", "l3")])
def test_a_row_has_no_value_for_a_loss_without_weight(config, weight, loss):
    trainer, _ = watched(config.replace(epochs=1, cluster_start=0.0, **{weight: 0.0}))
    (row,) = trainer.metrics.rows
    assert [name for name in ("l1", "l2", "l3") if row[name] is None] == [loss]


def test_what_a_run_does_by_the_clock(config, tmp_path, monkeypatch):
    """Steps of 25 seconds: a checkpoint after a minute and one at the end, and how fast it was."""
    clock = [1000.0]
    monkeypatch.setattr("concurl.training.trainer.time", SimpleNamespace(monotonic=lambda: clock[0]))
    trainer = Trainer(config.replace(epochs=1, checkpoint_minutes=1.0), pictures(), folder=tmp_path)
    take, saved = trainer.take_step, []

    def slow(*arguments):
        clock[0] += 25
        return take(*arguments)

    trainer.take_step = slow
    trainer.save = lambda kind=CHECKPOINTS: saved.append((kind, trainer.step))
    trainer.fit()
    assert saved == [(FEATURES, 2), (CHECKPOINTS, 3), (CHECKPOINTS, 5)]
    (row,) = trainer.metrics.rows
    assert (row["images_per_second"], row["minutes"]) == (0.8, 2.083)


def test_at_the_end_of_an_epoch_its_row_comes_before_the_checkpoint(config, tmp_path):
    """A run that is resumed there begins the next epoch, and would never write the row."""
    config = config.replace(epochs=2, checkpoint_minutes=0.0)
    trainer, saved = Trainer(config, pictures(), folder=tmp_path), {}
    trainer.save = lambda kind=CHECKPOINTS: saved.setdefault(trainer.step, len(trainer.metrics.rows))
    trainer.fit()
    steps = trainer.steps_per_epoch
    assert saved == {step: step // steps for step in range(1, 2 * steps + 1)}


def test_a_checkpoint_of_other_images_or_of_another_config_is_refused(config, tmp_path):
    config = config.replace(epochs=1)
    Trainer(config, pictures(), folder=tmp_path).fit()
    other = pictures()
    other[7, 2, 3, 4] ^= 1
    with pytest.raises(UserError, match="the images have changed"):
        Trainer(config, other, folder=tmp_path).resume()
    with pytest.raises(UserError, match="another configuration"):
        Trainer(config.replace(tau=0.2), pictures(), folder=tmp_path).resume()
    assert Trainer(config, pictures(), folder=tmp_path).resume()


def test_the_clock_goes_on_where_it_stood(config, tmp_path):
    first, again = (Trainer(config.replace(epochs=1), pictures(), folder=tmp_path) for _ in range(2))
    first.seconds = 3600.0  # of the sittings before
    first.fit()
    assert 60 < first.metrics.rows[-1]["minutes"] < 65
    assert again.resume()
    assert 3600 < again.seconds < 3900


def test_diverged_features_are_not_kept(config, tmp_path):
    """Its loss was finite, but the last step before clustering spoiled a weight."""
    trainer = Trainer(config.replace(epochs=1, cluster_start=0.6), pictures(), folder=tmp_path)
    take = trainer.take_step

    def spoiled(*arguments):
        losses = take(*arguments)
        if trainer.step == 2:
            trainer.model.prototypes.data[0] = torch.nan
        return losses

    trainer.take_step = spoiled
    with pytest.raises(Diverged, match="at step 2"):
        trainer.fit()
    assert not (tmp_path / FEATURES).exists()


def test_a_diverged_epoch_is_the_last_and_leaves_no_row(config):
    trainer = Trainer(config.replace(epochs=3), pictures())
    take = trainer.take_step
    trainer.take_step = lambda *arguments: take(*arguments) * (torch.nan if trainer.step == 7 else 1)
    with pytest.raises(Diverged, match=r"at step 7: .* or, if it was bfloat16, with --precision float32"):
        trainer.fit()
    assert trainer.step == 10
    assert len(trainer.metrics.rows) == 1


def test_a_run_that_fails_leaves_no_thread_that_reads(config, monkeypatch):
    def fails(trainer, clustering):
        raise Stop

    monkeypatch.setattr("concurl.training.trainer.make_feed", Streaming)
    with pytest.raises(Stop) as error:
        watched(config, fails)
    assert error.tb  # a notebook keeps the last one, with all its frames
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("concurl-reader")]


@pytest.mark.parametrize(("precision", "dtype"), [("float32", None), ("bfloat16", torch.bfloat16), ("auto", None)])
def test_the_networks_are_trained_and_looked_at_in_the_precision_asked_for(config, precision, dtype):
    trainer = Trainer(config.replace(epochs=1, precision=precision, device="cpu"), pictures())
    seen = set()
    trainer.model.predictor.register_forward_hook(lambda module, given, out: seen.add(out.dtype))
    trainer.fit()
    assert seen == {dtype or torch.float32}
    assert trainer.monitor.autocast == dtype


def test_an_encoder_given_for_evaluation_is_trained(config):
    encoder = build_encoder("tiny", stem="small").eval()
    before = encoder.stem[1].running_mean.clone()
    byol = config.replace(epochs=1, beta=0.0, gamma=0.0)  # a look at the images would wake it up
    trainer = Trainer(byol, pictures(), encoder=encoder)
    trainer.fit()
    assert not torch.equal(trainer.model.online.encoder.stem[1].running_mean, before)


def test_the_monitor_looks_every_few_epochs_and_at_the_end_and_at_clusters_once_there_are_any(config):
    trainer, _ = watched(config.replace(epochs=7, cluster_start=0.5, monitor_every=3, schedule="cosine", tau_b_end=1.0))
    rows = trainer.metrics.rows
    assert [row["epoch"] for row in rows if "feature_std" in row] == [2, 5, 6]
    assert [row["epoch"] for row in rows if "cluster_sizes" in row] == [5, 6]
    for row in rows:  # what its last step was taken with
        now = trainer.schedule.at(5 * row["epoch"] + 4)
        assert (row["learning_rate"], row["tau_b"]) == (now.learning_rate, now.tau_b)


def test_clusters_are_not_looked_at_where_they_are_about_to_begin(config):
    rows = watched(config.replace(epochs=4, cluster_start=0.5))[0].metrics.rows
    assert [row["epoch"] for row in rows if "cluster_sizes" in row] == [2, 3]


def test_a_run_of_three_steps_clusters(config):
    trainer, losses = watched(config.replace(epochs=3, batch_size=100, cluster_start=0.85))
    assert np.isfinite([trainer.metrics.rows[-1][name] for name in ("l2", "l3")]).all()
    assert (losses[:, 2] > 0).tolist() == [False, False, True]
    assert not torch.equal(trainer.model.prototypes, Trainer(trainer.config, pictures()).model.prototypes)


@pytest.mark.parametrize("stop", [3, 7, 10])  # just before clustering begins; in an epoch after it; between two epochs
@pytest.mark.parametrize("later", [0, 4])  # steps that a kill undoes: those after the last checkpoint
def test_a_run_that_was_stopped_ends_as_if_nothing_had_happened(config, tmp_path, stop, later):
    config = config.replace(epochs=3)

    def trainer_in(name):
        trainer = Trainer(config, pictures(), folder=tmp_path / name)
        trainer.metrics.path.parent.mkdir(exist_ok=True)
        return trainer

    def until(trainer, step):
        take = trainer.take_step

        def stopped(*arguments):
            if trainer.step == step:
                trainer.save()
            if trainer.step == step + later:
                raise Stop
            return take(*arguments)

        trainer.take_step = stopped
        with suppress(Stop):
            trainer.fit()

    whole, first, again = trainer_in("whole"), trainer_in("stopped"), trainer_in("stopped")
    whole.fit()
    until(first, stop)
    assert again.resume()
    assert again.step == stop
    again.fit()
    for name, value in whole.state.named().items():
        assert torch.equal(again.state.named()[name], value), name
    by_the_clock = ("minutes", "images_per_second")
    rows = [[{k: v for k, v in row.items() if k not in by_the_clock} for row in t.metrics.rows] for t in (whole, again)]
    assert rows[0] == rows[1]
