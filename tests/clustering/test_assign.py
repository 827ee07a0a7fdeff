"""Labels and confidences: against plain loops over images and members, alone and in company."""

import dataclasses
import weakref

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from concurl.clustering.assign import (
    BRANCHES,
    Assignment,
    assign,
    assign_embeddings,
    balanced,
    embeddings,
    scores_and_codes,
    unfinished,
)
from concurl.clustering.evaluate import partitions
from concurl.config import Config
from concurl.network.embed import embed
from concurl.network.model import Model
from concurl.network.trained import TrainedModel
from concurl.objective.ensemble import draw_transforms, ensemble_log_assignments
from concurl.objective.kmeans import spherical_kmeans
from concurl.objective.sinkhorn import sinkhorn

N = 80


def make_model(config):
    torch.manual_seed(0)
    model = Model(config).to(memory_format=torch.channels_last).train()
    for _ in range(20):
        model(torch.randn(32, 3, 8, 8))
    with torch.no_grad():  # a target that is not the online branch
        for parameter in model.online.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
        model.prototypes.mul_(torch.linspace(0.5, 2, config.n_clusters)[:, None])  # training changes their lengths
    model.update_target(torch.tensor(0.7))
    return model


def transforms(config, seed=0):
    return draw_transforms(config.transforms, config.n_transforms, config.embedding_dim, config.projection_dim, seed)


def finish(config, model, A, images):
    """As a run does it: embed all images, strike the balance over them, label them."""
    draft = unfinished(config, model, A, None)
    x, kept = embeddings(draft, images, branches=BRANCHES[:3] + BRANCHES[4:])
    trained = balanced(draft, x)
    return trained, assign_embeddings(trained, x, kept)


@pytest.fixture(scope="module")
def images():
    """Pictures in a few colours, so that there is something to tell apart."""
    rng = np.random.default_rng(0)
    base = rng.integers(0, 200, (5, 3, 8, 8))
    return (base[rng.integers(0, 5, N)] + rng.integers(0, 56, (N, 3, 8, 8))).astype(np.uint8)


@pytest.fixture(scope="module")
def finished(tiny, images):
    config = tiny()
    return finish(config, make_model(config), transforms(config), images)


def random_model(config, dim=8):
    """A finished model that has only what embeddings are judged by."""
    generator = torch.Generator().manual_seed(1)
    centres = normalize(torch.randn(config.n_clusters, dim, generator=generator), dim=1)
    u = 5 * torch.randn(config.n_clusters, generator=generator)
    return TrainedModel(config, Model(config), "z", centres, transforms(config), u)


def unit(x):
    return x / np.sqrt((x * x).sum())


@pytest.mark.parametrize("kind", ["projection", "diagonal"])
def test_everything_said_about_an_image_by_a_plain_loop(tiny, kind):
    config = tiny(transforms=kind, n_transforms=7, n_clusters=5)
    trained = random_model(config)
    x = normalize(torch.randn(50, 8, generator=torch.Generator().manual_seed(0)), dim=1)
    x = torch.cat([x, trained.centres])  # in float32, the cosine of a centre with itself may be more than 1
    a = assign_embeddings(trained, x)
    C, A, u = (t.double().numpy() for t in (trained.centres, trained.A, trained.scalings))
    ballots = np.zeros((5, 5))
    for i, z in enumerate(x.double().numpy()):
        scores = np.array([z @ c for c in C])
        q = np.exp(scores / config.epsilon + u)
        label = q.argmax()
        assert a.labels[i] == label
        np.testing.assert_allclose(a.probabilities[i], q / q.sum(), rtol=0, atol=1e-6)
        assert a.p_labels[i] == scores.argmax()
        assert a.outlier[i] == pytest.approx((1 - scores.max()) / 2, abs=1e-6)
        assert a.outlier[i] >= 0
        members = []
        for m in A:
            m = np.diag(m) if m.ndim == 1 else m
            p = np.exp(np.array([unit(m @ z) @ unit(m @ c) for c in C]) / config.tau)
            members.append(p / p.sum())
            ballots[label, p.argmax()] += 1
        vote = np.mean(members, axis=0)
        np.testing.assert_allclose(a.vote[i], vote, rtol=0, atol=1e-5)
        assert a.vote_labels[i] == vote.argmax()
        assert a.confidence[i] == pytest.approx(vote[label], abs=1e-5)
        first, second = sorted(vote)[:-3:-1]
        assert a.margin[i] == pytest.approx(first - second, abs=1e-5)
        assert a.agreement[i] == pytest.approx(sum(p.argmax() == label for p in members) / 7, abs=1e-6)
    assert len(set(a.labels)) > 1
    assert 0 < a.agreement.mean() < 1
    assert (a.labels != a.p_labels).any()
    np.testing.assert_allclose(a.member_votes, ballots / ballots.sum(1, keepdims=True).clip(1), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(a.embeddings, x.numpy())


def test_scores_are_precise_enough_to_be_divided_by_a_small_epsilon(tiny):
    trained = random_model(tiny(epsilon=1e-4))
    x = normalize(torch.randn(5000, 8, generator=torch.Generator().manual_seed(0)), dim=1)
    logits = x.double() @ trained.centres.double().t() / 1e-4 + trained.scalings.double()
    found = assign_embeddings(trained, x)
    close = torch.softmax(logits, dim=1).max(1).values < 0.999  # the others would forgive a rounding
    assert close.sum() > 5
    np.testing.assert_allclose(found.probabilities, torch.softmax(logits, dim=1), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("images_at_once", "parts"), [(7, 9), (0, 60)])
@pytest.mark.parametrize("projection_dim", [3, 6], ids=["K is larger", "projections are larger"])
def test_large_sets_in_parts_say_the_same(tiny, monkeypatch, images_at_once, parts, projection_dim):
    trained = random_model(tiny(n_transforms=5, projection_dim=projection_dim))
    x = normalize(torch.randn(60, 8, generator=torch.Generator().manual_seed(0)), dim=1)
    whole = assign_embeddings(trained, x)
    taken = []
    monkeypatch.setattr(
        "concurl.clustering.assign.ensemble_log_assignments",
        lambda part, *rest: taken.append(len(part)) or ensemble_log_assignments(part, *rest),
    )
    monkeypatch.setattr("concurl.clustering.assign.NUMBERS_CPU", images_at_once * 5 * max(4, projection_dim))
    again = assign_embeddings(trained, x)
    assert len(taken) == parts
    for name in ("labels", "p_labels", "agreement", "member_votes"):
        np.testing.assert_array_equal(getattr(again, name), getattr(whole, name))
    for name in ("probabilities", "vote", "outlier"):
        np.testing.assert_allclose(getattr(again, name), getattr(whole, name), rtol=0, atol=1e-6)


@pytest.mark.parametrize("chunks_at_once", [1, 2])
def test_however_often_embeddings_are_fetched_they_are_the_same(finished, images, monkeypatch, chunks_at_once):
    trained, whole = finished
    monkeypatch.setattr("concurl.clustering.assign.FETCH", chunks_at_once)  # of three
    again = assign(trained, images, branches=("y_xi",))
    np.testing.assert_array_equal(again.embeddings, whole.embeddings)
    np.testing.assert_array_equal(again.branches["y_xi"], whole.branches["y_xi"])


def test_what_has_been_fetched_is_not_kept_on_the_device(finished, images, monkeypatch):
    made, kept = [], []

    def counted(*arguments, **options):
        for outputs in embed(*arguments, **options):
            made.append(weakref.ref(outputs["online"].z))
            kept.append(sum(chunk() is not None for chunk in made))
            yield outputs

    monkeypatch.setattr("concurl.network.embed.CHUNK_CPU", 8)  # ten chunks
    monkeypatch.setattr("concurl.clustering.assign.FETCH", 4)
    monkeypatch.setattr("concurl.clustering.assign.embed", counted)
    assign(finished[0], images)
    assert len(made) == 10
    assert max(kept) == 4


def test_embeddings_are_made_as_the_model_was_trained(tiny, images):
    config = tiny(sobel=True)
    model = Model(config)
    x, _ = embeddings(unfinished(config, model, transforms(config), torch.bfloat16), images)
    parts = embed(model, images, image_size=8, sobel=True, autocast=torch.bfloat16)
    assert torch.equal(x, normalize(torch.cat([part["online"].z for part in parts]), dim=1))


def test_a_label_does_not_depend_on_company(finished, images):
    trained, whole = finished
    assert len(set(whole.labels)) == 4
    sevens = [assign(trained, images[i : i + 7]) for i in range(0, N, 7)]
    np.testing.assert_array_equal(np.concatenate([a.labels for a in sevens]), whole.labels)
    np.testing.assert_array_equal(np.concatenate([a.embeddings for a in sevens]), whole.embeddings)
    np.testing.assert_allclose(np.concatenate([a.vote for a in sevens]), whole.vote, rtol=0, atol=1e-6)
    for i in range(0, N, 9):
        alone = assign(trained, images[i : i + 1])
        assert alone.labels[0] == whole.labels[i]
        np.testing.assert_array_equal(alone.embeddings[0], whole.embeddings[i])
        np.testing.assert_allclose(alone.probabilities[0], whole.probabilities[i], rtol=0, atol=1e-6)


@pytest.mark.parametrize("n_equal", [3, 7, 10])
def test_between_equal_centres_company_does_not_decide(n_equal):
    """The last bits of a product depend on its shape: of these images, it alone would move a third and more."""
    draw = torch.Generator().manual_seed(0)
    x = normalize(torch.randn(300, 64, generator=draw), dim=1)
    centre = normalize(torch.randn(1, 64, generator=draw), dim=1)
    for part in (*x.split(1), *x.split(7), x):
        for found in scores_and_codes(part, centre.repeat(n_equal, 1), torch.zeros(n_equal), 0.05):
            assert (found.argmax(1) == 0).all()


def test_labels_of_the_training_images_are_those_of_a_loaded_model(finished, images, tmp_path):
    trained, whole = finished
    trained.save(tmp_path / "model")
    again = assign(TrainedModel.load(tmp_path / "model"), images)
    np.testing.assert_array_equal(again.labels, whole.labels)
    np.testing.assert_array_equal(again.probabilities, whole.probabilities)


def test_finish_balances_the_whole_set(finished):
    trained, whole = finished
    np.testing.assert_allclose(whole.probabilities.mean(0), 0.25, rtol=0, atol=1e-5)
    torch.testing.assert_close(trained.centres, normalize(trained.model.prototypes.detach(), dim=1))
    scores = torch.from_numpy(whole.embeddings).double() @ trained.centres.double().t()
    q, u = sinkhorn(scores, trained.config.epsilon, 3000)
    torch.testing.assert_close(trained.scalings.double(), u, rtol=0, atol=1e-4)
    np.testing.assert_array_equal(whole.labels, q.argmax(1).numpy())
    assert np.bincount(whole.p_labels, minlength=4).max() > np.bincount(whole.labels, minlength=4).max()


@pytest.mark.parametrize("balance", [0.5, 0])
def test_finish_balances_only_as_far_as_it_is_asked(tiny, images, balance):
    config = tiny(balance=balance)
    trained, whole = finish(config, make_model(config), transforms(config), images)
    scores = torch.from_numpy(whole.embeddings).double() @ trained.centres.double().t()
    _, u = sinkhorn(scores, config.epsilon, 3000, balance=balance)
    torch.testing.assert_close(trained.scalings.double(), u, rtol=0, atol=1e-4)
    assert (whole.labels == whole.p_labels).all() == (balance == 0)


def branch_values(model, images):
    """Every branch by name, straight from the networks."""
    parts = list(embed(model, images, image_size=8))
    online, target = (
        [torch.cat(t) for t in zip(*(p[side][:3] for p in parts), strict=True)] for side in ("online", "target")
    )
    w = torch.cat([p["online"].w for p in parts])
    return dict(zip(BRANCHES, (online[0], online[1], w, online[2], target[0], target[1]), strict=True))


def test_branches_are_what_their_names_say(finished, images):
    trained, whole = finished
    want = branch_values(trained.model, images)
    _, got = embeddings(trained, images, branches=BRANCHES)
    assert list(got) == list(BRANCHES)
    for name in BRANCHES:
        np.testing.assert_array_equal(got[name], want[name].numpy())
    np.testing.assert_array_equal(whole.embeddings, normalize(want["z"], dim=1).numpy())
    assert set(whole.branches) == {"y_theta", "v_theta", "w_theta", "y_xi", "v_xi"}


@pytest.mark.parametrize("projector_dim", [12, 8], ids=["another dimension than z", "the dimension of z"])
def test_byol_alone_is_clustered_by_kmeans_on_v_xi(tiny, images, projector_dim):
    config = tiny(beta=0.0, gamma=0.0, projector_dim=projector_dim, seed=3)
    A = transforms(config)
    trained, whole = finish(config, make_model(config), A, images)
    assert trained.space == "v_xi"
    v_xi = normalize(branch_values(trained.model, images)["v_xi"], dim=1)
    centres, labels = spherical_kmeans(v_xi, 4, seed=config.seed)
    np.testing.assert_array_equal(whole.labels, labels.numpy())
    np.testing.assert_array_equal(whole.embeddings, v_xi.numpy())
    torch.testing.assert_close(trained.centres, centres)
    assert torch.equal(trained.scalings, torch.zeros(4))
    np.testing.assert_array_equal(assign(trained, images).labels, whole.labels)
    sevens = [assign(trained, images[i : i + 7]).labels for i in range(0, N, 7)]
    np.testing.assert_array_equal(np.concatenate(sevens), whole.labels)
    assert trained.A.shape == (5, 3, projector_dim)  # members that see v_xi, whatever its dimension
    assert torch.equal(trained.A, A) == (projector_dim == 8)
    eye = torch.eye(3).expand(5, 3, 3)
    torch.testing.assert_close(trained.A @ trained.A.transpose(1, 2), eye, rtol=0, atol=1e-5)
    found = partitions(whole, config)
    assert "codes" not in found
    np.testing.assert_array_equal(found["kmeans_v_xi"], whole.labels)


def test_finish_leaves_the_model_as_it_was(tiny, images):
    config = tiny()
    model = make_model(config).train()
    before = {name: t.clone() for name, t in model.state_dict().items()}
    finish(config, model, transforms(config), images[:20])
    assert model.training
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())


def test_no_images_give_empty_answers(finished):
    empty = assign(finished[0], np.zeros((0, 3, 8, 8), np.uint8), branches=BRANCHES)
    assert empty.labels.shape == empty.agreement.shape == (0,)
    assert empty.probabilities.shape == empty.vote.shape == (0, 4)
    assert empty.embeddings.shape == (0, 8)
    assert empty.confidence.shape == empty.margin.shape == (0,)


def test_types_are_those_promised(finished):
    _, whole = finished
    assert isinstance(whole, Assignment)
    for field in dataclasses.fields(whole):
        value = getattr(whole, field.name)
        if isinstance(value, np.ndarray):
            assert value.dtype == (np.int64 if "labels" in field.name else np.float32), field.name


def test_a_tie_between_equal_prototypes_is_decided_alike_for_one_image_and_for_many() -> None:
    """Prototypes are equal where there are fewer different images than clusters."""
    sizes = {"projector_hidden": 8, "cluster_hidden": 8, "n_transforms": 2}
    config = Config(n_clusters=10, encoder="tiny", stem="small", image_size=8, preset="none", **sizes)
    model, draw = Model(config), torch.Generator().manual_seed(0)
    C = normalize(torch.randn(5, 256, generator=draw), dim=1).repeat(2, 1)
    model.prototypes.data.copy_(C)
    noise = 0.1 * torch.randn(300, 256, generator=draw)
    x = normalize(C[torch.randint(0, 10, (300,), generator=draw)] + noise, dim=1)
    trained = balanced(unfinished(config, model, draw_transforms("projection", 2, 256, 64, 0), None), x)
    alone = [assign_embeddings(trained, row[None]).labels[0] for row in x]
    np.testing.assert_array_equal(assign_embeddings(trained, x).labels, alone)


def test_the_label_is_the_largest_code_even_where_two_codes_differ_by_less_than_a_float() -> None:
    sizes = {"projector_hidden": 8, "cluster_hidden": 8, "n_transforms": 2}
    config = Config(n_clusters=2, encoder="tiny", stem="small", image_size=8, preset="none", epsilon=100.0, **sizes)
    model, draw = Model(config), torch.Generator().manual_seed(0)
    C = normalize(torch.randn(1, 256, generator=draw) + 1e-4 * torch.randn(2, 256, generator=draw), dim=1)
    draft = unfinished(config, model, draw_transforms("projection", 2, 256, 64, 0), None)
    found = assign_embeddings(
        dataclasses.replace(draft, centres=C), normalize(torch.randn(50, 256, generator=draw), dim=1)
    )
    np.testing.assert_array_equal(found.probabilities.argmax(1), found.labels)
