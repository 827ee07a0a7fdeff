"""The verdict says what the numbers say: each failure that it is there for is caught, and a good run is not blamed."""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from synthetic_run import make_run

from concurl.config import Config
from concurl.report.checks import percent
from concurl.report.facts import RunFacts
from concurl.report.verdict import judge
from concurl.training.health import Health


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> RunFacts:
    return RunFacts.read(make_run(tmp_path_factory.mktemp("v") / "r").folder)


def changed_epochs(facts: RunFacts, **keys: Any) -> RunFacts:
    return replace(facts, epochs=tuple({**epoch, **keys} for epoch in facts.epochs))


def titles(facts: RunFacts, state: str) -> list[str]:
    return [check.title for check in judge(facts).checks if check.state == state]


def test_a_good_run_is_called_healthy_with_its_own_numbers(healthy: RunFacts) -> None:
    verdict = judge(healthy)
    text = " ".join((*verdict.sentences, verdict.health))
    assert verdict.state == "good"
    assert verdict.headline == "180 images in 6 clusters"
    assert f"on average {round(100 * healthy.agreement.mean())}% of its members" in text
    unsure = int(healthy.unsure.sum())
    assert f"{unsure} image{'s' * (unsure != 1)} ({percent(unsure / 180)})" in text
    assert "The run looks healthy." in text
    assert text.endswith("look at the random sample of each below.")  # what to do next


@pytest.mark.parametrize(
    ("balance", "clustered", "said"), [(1, True, True), (1.0, True, True), (0.7, True, False), (1, False, False)]
)
def test_equal_sizes_that_were_asked_for_are_not_shown_as_a_finding(
    healthy: RunFacts, balance: float, clustered: bool, said: bool
) -> None:
    facts = replace(healthy, config=healthy.config.replace(balance=balance))
    if not clustered:
        facts = changed_epochs(facts, l2=None, l3=None)
    text = next(check.text for check in judge(facts).checks if check.title == "No empty or dominant cluster")
    assert ("The run asks for equal sizes" in text) is said


@pytest.mark.parametrize(
    ("agreement", "word"), [(0.9, "very sure"), (0.89, "mostly sure"), (0.5, "often unsure"), (0.49, "unsure")]
)
def test_how_sure_follows_the_thresholds(healthy: RunFacts, agreement: float, word: str) -> None:
    facts = replace(healthy, agreement=np.full(180, agreement))
    assert f"The ensemble is {word} of these clusters" in judge(facts).sentences[0]
    assert ("The ensemble disagrees with these clusters" in titles(facts, "bad")) == (agreement < 0.5)


def test_without_agreement_the_confidence_speaks(healthy: RunFacts) -> None:
    facts = replace(healthy, agreement=np.full(180, math.nan), confidence=np.full(180, 0.95))
    assert judge(facts).sentences[0] == "The model is very sure of these clusters: the mean confidence is 95%."


def test_a_loss_not_far_below_ln_k_is_for_a_look(healthy: RunFacts) -> None:
    facts = changed_epochs(healthy, l2=0.75 * math.log(6), l3=0.5)
    assert titles(facts, "watch") == ["The clusters are loose"]
    assert not titles(facts, "bad")
    assert judge(facts).sentences[0].startswith("On average")  # members that agree on loose clusters are not praised
    text = judge(facts).checks[0].text  # 40 epochs took 3.2 minutes
    assert text.endswith("Try more --epochs (400 would take about 32 minutes here), or more images.")
    silent = replace(facts, summary={**facts.summary, "minutes": None})
    assert judge(silent).checks[0].text.endswith("Try more --epochs, or more images.")
    noise = (*healthy.epochs[:-1], {**healthy.epochs[-1], "l2": math.log(6)})
    assert not titles(replace(healthy, epochs=noise), "bad")  # one epoch alone says little


def test_a_loss_at_ln_k_is_no_clustering(healthy: RunFacts) -> None:
    facts = changed_epochs(healthy, l2=0.99 * math.log(6), l3=0.5)
    assert titles(facts, "bad") == ["Clustering did not start"]
    health = Health(Config(n_clusters=6, epochs=1))
    health.look({"epoch": 0, "l2": 1.8})
    both = replace(facts, summary={**facts.summary, "warnings": health.warnings})
    assert health.warnings
    assert judge(both) == judge(facts)  # said once
    assert "do not rely on these clusters" in judge(facts).health
    assert judge(facts).health.endswith("is listed below.")


@pytest.mark.parametrize(("weights", "state"), [((0.5, 0), "bad"), ((0, 0.5), "bad"), ((0, 0), "watch")])
def test_clusters_that_were_asked_for_and_never_learned_are_bad(
    healthy: RunFacts, weights: tuple[float, float], state: str
) -> None:
    facts = changed_epochs(healthy, l2=None, l3=None)
    facts = replace(facts, config=facts.config.replace(beta=weights[0], gamma=weights[1]))
    (check,) = [check for check in judge(facts).checks if "No clustering loss" in check.text]
    assert check.state == judge(facts).state == state
    assert judge(facts).sentences[0].startswith("On average")  # nothing was learned that members could be sure of


def test_nan_is_divergence(healthy: RunFacts) -> None:
    facts = changed_epochs(healthy, l1=math.nan)
    assert titles(facts, "bad") == [judge(facts).trouble] == ["BYOL loss is not a number"]


def test_everything_in_one_cluster_is_bad(healthy: RunFacts) -> None:
    facts = replace(healthy, cluster=np.where(np.arange(180) < 120, 2, healthy.cluster))
    assert "One cluster holds most images" in titles(facts, "bad")
    unequal = replace(facts, config=facts.config.replace(balance=0.7))
    assert "One cluster holds most images" in titles(unequal, "watch")  # as it was asked to be let


def test_two_clusters_may_be_uneven_but_not_nearly_one(healthy: RunFacts) -> None:
    for size, state in ((110, "good"), (180, "bad")):
        facts = replace(healthy, names=("a", "b"), cluster=(np.arange(180) >= size).astype(np.int64), epochs=())
        assert judge(facts).state == state


def test_of_many_clusters_one_is_very_large_long_before_it_holds_half(healthy: RunFacts) -> None:
    for size, state in ((25, "good"), (35, "watch")):  # an even share is 3
        cluster = np.where(np.arange(180) < size, 0, np.arange(180) % 60)
        facts = replace(healthy, cluster=cluster, names=tuple(map(str, range(60))), epochs=())
        assert ("One cluster is very large" in titles(facts, "watch")) == (state == "watch")


@pytest.mark.parametrize(("k", "told"), [(18, False), (19, True)])
def test_few_images_for_the_clusters_are_told_of(healthy: RunFacts, k: int, told: bool) -> None:
    facts = replace(healthy, cluster=np.arange(180) % k, names=tuple(map(str, range(k))))
    assert ("Few images" in titles(facts, "watch")) == told
    assert ("The members agree with each other" in titles(facts, "good")) == (not told)  # by chance alone


def test_an_empty_and_a_tiny_cluster_are_reported(healthy: RunFacts) -> None:
    cluster = np.arange(180) % 5
    cluster[0] = 5
    facts = replace(healthy, cluster=cluster, names=(*healthy.names, "seventh"))
    (check,) = [check for check in judge(facts).checks if check.state == "watch"]
    assert check.text.startswith("1 cluster empty and 1 cluster under a tenth of an even share")


def test_equal_embeddings_are_a_collapse(healthy: RunFacts) -> None:
    equal, diverged = np.tile(healthy.embeddings[:1], (180, 1)), np.full((180, 16), math.nan)
    assert titles(replace(healthy, embeddings=equal), "bad") == ["Embeddings collapsed"]
    assert titles(replace(healthy, embeddings=diverged), "bad") == ["Embeddings are not numbers"]


def test_a_cluster_that_is_mostly_unsure_is_named(healthy: RunFacts) -> None:
    in_two = healthy.cluster == 2
    half = replace(healthy, unsure=in_two & (np.cumsum(in_two) <= in_two.sum() // 2))
    assert judge(half).state == "good"
    most = replace(healthy, unsure=in_two | (healthy.cluster == 4))
    (check,) = [check for check in judge(most).checks if check.state == "watch"]
    assert check.title == "2 clusters mostly unsure"
    assert "Cluster 2\u2069, \u2068Cluster 4" in check.text
    all_of_them = replace(healthy, unsure=np.ones(180, dtype=bool), agreement=np.full(180, 0.2))
    assert titles(all_of_them, "watch") == []  # that the ensemble disagrees with all of them says it already


@pytest.mark.parametrize("sizes", [(180, 0), (172, 8), (90, 90), (8, 7)])
def test_nobody_is_told_to_ask_for_fewer_than_two_clusters(healthy: RunFacts, sizes: tuple[int, int]) -> None:
    n = sum(sizes)
    parts = {key: getattr(healthy, key)[:n] for key in ("paths", "confidence", "margin", "agreement", "outlier")}
    cluster = np.repeat([0, 1], sizes)
    facts = replace(
        healthy, **parts, cluster=cluster, unsure=cluster == 1, names=("a", "b"), embeddings=healthy.embeddings[:n]
    )
    told = [check.text for check in judge(facts).checks if check.state != "good"]
    assert told
    assert not [text for text in told if "-k" in text.split() or "(-k)" in text or "fewer clusters" in text]


def test_advice_can_be_typed_as_it_stands(healthy: RunFacts) -> None:
    """Options as the command line has them: nobody types learning_rate."""
    equal = replace(healthy, embeddings=np.ones((180, 16)) / 4)
    stuck, diverged = changed_epochs(healthy, l2=0.99 * math.log(6)), changed_epochs(healthy, l1=math.nan)
    against = replace(healthy, agreement=np.full(180, 0.4))
    divided, loose = changed_epochs(healthy, diversity_mean=0.3), changed_epochs(healthy, l2=0.75 * math.log(6))
    never = changed_epochs(healthy, l2=None, l3=None)
    fields = {field.name for field in dataclasses.fields(Config)}
    for facts in (equal, stuck, diverged, against, divided, loose, never):
        (text,) = [check.text for check in judge(facts).checks if check.state != "good"]
        named = re.findall(r"--([a-z-]+)", text)
        assert named
        assert {name.replace("-", "_") for name in named} <= fields
        assert not [name for name in fields if "_" in name and name in text]


def test_random_directions_have_a_spread_of_one(healthy: RunFacts) -> None:
    z = np.random.default_rng(0).normal(size=(180, 64)).astype(np.float32)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    (check,) = [c for c in judge(replace(healthy, embeddings=z)).checks if "look different" in c.title]
    assert check.text.startswith(("Spread 1.00", "Spread 0.99"))


def test_embeddings_are_not_praised_beside_a_warning_that_features_hardly_differ(healthy: RunFacts) -> None:
    assert "Images look different to the model" in titles(changed_epochs(healthy, feature_std=0.2), "good")
    assert "Images look different to the model" not in titles(changed_epochs(healthy, feature_std=0.09), "good")
    assert "Images look different to the model" not in titles(changed_epochs(healthy, feature_dimensions=2.0), "good")


def test_members_that_agree_on_one_cluster_or_on_others_than_the_labels_are_not_praised(healthy: RunFacts) -> None:
    assert "The members agree with each other" in titles(healthy, "good")
    apart = replace(healthy, agreement=np.full(180, 0.4))  # they agree, but not on the labels
    assert "The members agree with each other" not in titles(apart, "good")
    one = replace(changed_epochs(healthy, diversity_mean=1.0), cluster=np.zeros(180, dtype=np.int64))
    assert "The members agree with each other" not in titles(one, "good")
    doubtful = replace(healthy, unsure=healthy.cluster == 2)
    assert titles(doubtful, "watch") == ["1 cluster mostly unsure"]
    assert "The members agree with each other" not in titles(doubtful, "good")


def test_a_divided_ensemble_and_warnings_are_for_a_look(healthy: RunFacts) -> None:
    facts = changed_epochs(healthy, diversity_mean=0.3)
    facts = replace(
        facts,
        summary={"warnings": ["only 3 of 6 clusters are used. Usually K is larger: try fewer", "NMI 0.031 is low"]},
    )
    assert titles(facts, "watch") == ["The ensemble is divided", "Only 3 of 6 clusters are used", "NMI 0.031 is low"]
    assert [check.text for check in judge(facts).checks[1:3]] == ["Usually K is larger: try fewer.", ""]
    assert judge(facts).health == "Before you rely on these clusters, read the notes below."


def warned(facts: RunFacts, epochs: int, **row: float) -> RunFacts:
    """The run with all that its health watch tells of so many epochs like this one."""
    health = Health(Config(n_clusters=6, epochs=epochs, cluster_lr=0.1))
    for epoch in range(epochs):
        health.look({"epoch": epoch, **row})
    assert len(health.warnings) == 1
    return replace(facts, summary={"warnings": health.warnings})


def test_a_symptom_that_check_and_health_watch_have_seen_is_told_once(healthy: RunFacts) -> None:
    divided = changed_epochs(healthy, diversity_mean=0.03)
    assert titles(divided, "watch") == ["The ensemble is divided"]
    assert judge(warned(divided, 1, diversity_mean=0.03)) == judge(divided)
    equal = replace(healthy, embeddings=np.ones((180, 16)) / 4)
    assert titles(equal, "bad") == ["Embeddings collapsed"]
    assert judge(warned(equal, 1, feature_std=0.01)) == judge(equal)
    assert titles(warned(healthy, 1, feature_std=0.01), "watch") == [
        "The features hardly differ between images (spread 0.010, 1 is even)"
    ]


def test_no_check_praises_what_the_health_watch_warns_of(healthy: RunFacts) -> None:
    assert {"Clusters were learned", "The members agree with each other"} <= set(titles(healthy, "good"))
    idle = warned(healthy, 6, l2=0.5)
    assert titles(idle, "watch") == ["Learning clusters has gained nothing"]
    assert "Clusters were learned" not in titles(idle, "good")
    unison = warned(healthy, 5, diversity_mean=1.0)
    assert "The members agree with each other" not in titles(unison, "good")


def test_a_finished_run_is_not_told_to_train_longer(healthy: RunFacts) -> None:
    """As every recipe's runs end: clustering comes late, its losses are added, and the learning rate goes to zero."""
    late = [{"epoch": e, "l1": 0.5, "loss": 0.5} for e in range(170)]
    late += [{"epoch": 170 + e, "l2": 1.0, "l3": 1.0, "loss": 1.2 + 2 * math.exp(-e / 6)} for e in range(30)]
    assert "The loss has settled" in titles(replace(healthy, epochs=tuple(late)), "good")
    straight = [*late[:170], *({**e, "loss": 3 - 0.02 * i} for i, e in enumerate(late[170:]))]
    assert "The loss was still falling" in titles(replace(healthy, epochs=tuple(straight)), "watch")
    byol = tuple({"epoch": e, "l1": 1.0, "loss": 1 - e / 400} for e in range(300))
    assert not [c for c in judge(replace(healthy, epochs=byol)).checks if "falling" in c.title]


def test_a_noisy_loss_that_falls_no_more_has_settled(healthy: RunFacts) -> None:
    """As of 500 photographs: 90 epochs of clustering, of which the first few bring what there is to gain."""
    for seed in range(40):
        noise = np.random.default_rng(seed).normal(0, 0.04, 90)
        loss = 1.4 + 0.1 * np.exp(-np.arange(90) / 3) + noise
        epochs = [{"epoch": e, "l2": 1.4, "l3": 1.4, "loss": value} for e, value in enumerate(loss.tolist())]
        assert "The loss has settled" in titles(replace(healthy, epochs=tuple(epochs)), "good"), seed
        falling = [{**row, "loss": row["loss"] - 0.02 * max(0, e - 60)} for e, row in enumerate(epochs)]
        assert "The loss was still falling" in titles(replace(healthy, epochs=tuple(falling)), "watch"), seed


def test_many_skipped_files_are_for_a_look(healthy: RunFacts) -> None:
    facts = replace(healthy, skipped=(("a", "duplicate", ""), *(("b", "truncated", ""),) * 19))
    (check,) = [check for check in judge(facts).checks if check.state == "watch"]
    assert check.text == "20 files (10%) left out: 19 truncated, 1 duplicate. Details lists each."


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0%"), (0.004, "under 1%"), (0.5, "50%"), (0.999, "over 99%"), (1, "100%"), (math.nan, "unknown")],
)
def test_percent_never_rounds_something_to_nothing(share: float, text: str) -> None:
    assert percent(share) == text
