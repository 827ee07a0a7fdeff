"""Which checkpoints a run may go on from: its own, also those of an older version."""

from __future__ import annotations

import json

import pytest

from concurl.config import Config
from concurl.training.state import same_run

CONFIG = Config(n_clusters=7, epochs=3, tau=0.2)


def kept(**changes):
    return json.dumps(json.loads(CONFIG.to_json()) | changes)


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
