"""All that a run goes on from; and which checkpoints that may be: its own, also those of an older version."""

from __future__ import annotations

import json

import pytest
import torch

from concurl.config import Config
from concurl.training.state import same_run
from concurl.training.trainer import Trainer
from ranks import pictures

CONFIG = Config(n_clusters=7, epochs=3, tau=0.2)


def kept(**changes):
    return json.dumps(json.loads(CONFIG.to_json()) | changes)


def test_a_loaded_state_is_the_one_that_was_saved(config):
    trainer, other = (Trainer(config.replace(epochs=2, seed=seed), pictures()) for seed in (0, 1))
    trainer.fit()
    trainer.totals += 1  # as in the middle of an epoch
    saved = {name: tensor.clone() for name, tensor in trainer.state.named().items()}
    other.state.load(saved)
    torch.testing.assert_close(other.state.named(), saved, rtol=0, atol=0)
    parts = {name.split(".")[0] for name in saved}
    assert parts == {"model", "optimizer", "queue", "A", "totals"}
    assert any(name.startswith("optimizer.") and name.endswith(".exp_avg") for name in saved)


def test_its_own():
    assert same_run(CONFIG, CONFIG.to_json(), until_clustering=False)


def test_an_older_version_knew_fewer_options():
    older = json.loads(CONFIG.to_json())
    del older["view_scale"], older["reproducible"]
    assert same_run(CONFIG, json.dumps(older), until_clustering=False)
    assert not same_run(CONFIG.replace(view_scale=0.75), json.dumps(older), until_clustering=False)


@pytest.mark.parametrize("changes", [{"n_clusters": 8}, {"gamma": 0.0}, {"tau": 0.1}])
def test_other_clusters_are_the_same_until_they_begin(changes):
    assert same_run(CONFIG, kept(**changes), until_clustering=True)
    assert not same_run(CONFIG, kept(**changes), until_clustering=False)


def test_a_second_course_may_be_lower_but_is_none_or_one():
    second = CONFIG.replace(cluster_lr=0.3)
    assert same_run(second.replace(cluster_lr=0.03), second.to_json(), until_clustering=True)
    assert not same_run(second.replace(cluster_lr=0.03), second.to_json(), until_clustering=False)
    assert not same_run(second, CONFIG.to_json(), until_clustering=True)


@pytest.mark.parametrize("changes", [{"seed": 1}, {"batch_size": 128}, {"alpha": 0.5}, {"of_a_newer_version": 1}])
def test_others_are_others_before(changes):
    assert not same_run(CONFIG, kept(**changes), until_clustering=True)


@pytest.mark.parametrize("text", ["", "[]", "null", '{"epochs": "many"}', "[" * 100_000])
def test_what_is_no_configuration_is_not_ours(text):
    assert not same_run(CONFIG, text, until_clustering=True)
