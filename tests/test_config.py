"""Options: checked when made, written and read without loss, settled by rules that see no name."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

import numpy as np
import pytest

from concurl.commands.options import config_help
from concurl.config import Config, Preset
from concurl.data.imageset import ImageSet
from concurl.errors import UserError
from concurl.recipes import RECIPES, SetFacts, recipe, settle
from concurl.runs import run

CIFAR = SetFacts(n_images=60_000, height=32, width=32, gray=False, gpu=True)


def test_the_defaults_are_the_papers() -> None:
    c = Config()
    assert (c.encoder, c.optimizer, c.learning_rate, c.batch_size, c.epochs) == ("resnet34", "adam", 5e-4, 256, 500)
    assert (c.alpha, c.beta, c.gamma) == (1, 1, 1)
    assert (c.tau, c.tau_b, c.n_transforms, c.projection_dim) == (0.1, 0.99, 100, 64)
    assert (c.projector_hidden, c.projector_dim, c.cluster_hidden, c.embedding_dim) == (4096, 256, 2048, 256)
    assert (c.codes_from, c.queue_size, c.cluster_start, c.prototype_init) == ("online", 0, 0, "random")


@pytest.mark.parametrize(
    ("name", "K", "epochs", "batch", "size"),
    [
        ("paper-cifar10", 10, 500, 256, 32),
        ("paper-cifar100-20", 20, 500, 256, 32),
        ("paper-stl10", 10, 1000, 128, 96),
        ("paper-imagenet10", 10, 500, 128, 224),
        ("paper-imagenet-dogs", 15, 500, 128, 224),
    ],
)
def test_the_papers_recipes_say_what_the_paper_says(name: str, K: int, epochs: int, batch: int, size: int) -> None:
    c = recipe(name)
    assert (c.n_clusters, c.epochs, c.batch_size, c.image_size, c.preset) == (K, epochs, batch, size, "natural")
    assert c.colours == "kornia"  # the paper names the library
    different = {f.name for f in dataclasses.fields(c) if getattr(c, f.name) != getattr(Config(), f.name)}
    assert different <= {"n_clusters", "epochs", "batch_size", "image_size", "preset", "stem", "colours"}


def test_every_recipe_has_its_contract() -> None:
    for name, make in RECIPES.items():
        assert "concurl" in (inspect.getdoc(make) or ""), name


def test_json_round_trip_and_older_files(tmp_path: Path) -> None:
    config = recipe("modern").replace(seed=7)
    path = tmp_path / "config.json"
    path.write_text(config.to_json())
    assert Config.from_json(path) == config
    path.write_text('{"epochs": 3}')  # a version that knew one option only
    assert Config.from_json(path) == Config(epochs=3)
    assert Config(epochs=3).batch_norm == "joint"  # as all did before there was a choice
    assert not Config().same_features(Config(batch_norm="apart"))


def test_numbers_of_numpy_are_numbers() -> None:
    config = Config(
        n_clusters=np.int64(5), epochs=np.uint8(3), tau=np.float32(0.5), alpha=np.int32(2), beta=np.float64(0.5)
    )
    assert config == Config(n_clusters=5, epochs=3, tau=0.5, alpha=2, beta=0.5)
    assert {type(getattr(config, name)) for name in ("n_clusters", "epochs", "alpha")} == {int}
    assert {type(getattr(config, name)) for name in ("tau", "beta")} == {float}
    assert config.to_json() == Config(n_clusters=5, epochs=3, tau=0.5, alpha=2, beta=0.5).to_json()
    for wrong in (np.float64(5), np.bool_(True), True, np.int64(1), np.array([5, 6])):
        with pytest.raises(UserError, match=r"n_clusters=.*: a whole number"):
            Config(n_clusters=wrong)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"epochs": 0}, "epochs=0"),
        ({"epochs": 1.5}, "whole number"),
        ({"epochs": True}, "epochs=True"),
        ({"tau": float("nan")}, "tau=nan"),
        ({"tau": "0.1"}, "tau='0.1'"),
        ({"encoder": "vgg"}, "resnet18"),
        ({"n_clusters": None}, "a value is needed"),
        ({"blur_kernel": 4}, "odd"),
        ({"alpha": 0, "beta": 0, "gamma": 0}, "at least one loss"),
        ({"projection_dim": 300}, "embedding_dim=256"),
        ({"head_init": "projector"}, "cluster_hidden=2048"),
        ({"epoch": 3}, "did you mean epochs?"),
    ],
)
def test_wrong_values_are_named_when_a_config_is_made(changes: dict[str, object], says: str) -> None:
    with pytest.raises(UserError) as error:
        Config().replace(**changes)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_every_option_has_help() -> None:
    groups = config_help()
    assert next(iter(groups)) == "the clusters"
    assert "epsilon" in groups["the objective"]
    assert "device" in groups["the machine"]
    told = {name: text for group in groups.values() for name, text in group.items()}
    assert list(told) == [field.name for field in dataclasses.fields(Config)]
    assert all(len(text) > 10 for text in told.values())


def test_settling_leaves_nothing_open_and_says_why() -> None:
    config, said = settle(recipe("modern"), CIFAR)
    assert (config.image_size, config.stem, config.preset, config.encoder) == (32, "small", "small", "resnet18")
    assert (config.batch_size, config.epochs) == (512, 1000)
    assert (config.projector_hidden, config.cluster_hidden) == (4096, 4096)
    settled = {"image_size", "view_scale", "stem", "preset", "encoder", "batch_size", "epochs", "learning_rate"}
    assert {line.split(" ")[0] for line in said} == settled | {"projector_hidden", "cluster_hidden"}
    # None is a value of theirs
    optional = {
        "depth",
        "crop_min",
        "brightness",
        "blur_kernel",
        "tau_b_end",
        "cluster_lr",
        "checkpoint_epochs",
        "micro_batch",
    }
    left = {f.name for f in dataclasses.fields(config) if getattr(config, f.name) is None}
    assert left <= optional


@pytest.mark.parametrize(("preset", "size"), [("small", 24), ("natural", 24), ("free", 24), ("gray", 32), ("none", 32)])
def test_views_are_smaller_where_crops_enlarge_what_they_show(preset: Preset, size: int) -> None:
    assert settle(recipe("modern").replace(preset=preset), CIFAR)[0].view_size == size
    assert settle(recipe("paper-cifar10").replace(preset=preset), CIFAR)[0].view_size == 32
    assert settle(recipe("modern").replace(preset=preset, crop_min=1.0), CIFAR)[0].view_size == 32


@pytest.mark.parametrize(("n", "batch"), [(10, 10), (500, 32), (1797, 32), (9469, 128), (60_000, 512), (10**7, 512)])
def test_an_epoch_has_fifty_steps_where_there_are_images_for_it(n: int, batch: int) -> None:
    assert settle(recipe("modern"), SetFacts(n, 32, 32, gray=False, gpu=True))[0].batch_size == batch


@pytest.mark.parametrize(
    ("batch", "rate"), [(512, 0.1), (128, 0.05), (32, 0.025), (8, 0.0125), (4096, 0.1)], ids=lambda value: str(value)
)
def test_smaller_batches_take_smaller_steps(batch: int, rate: float) -> None:
    config, said = settle(recipe("modern").replace(batch_size=batch), CIFAR)
    assert config.learning_rate == rate
    assert any(line.startswith(f"learning_rate = {rate}: for batches of {batch:,} images") for line in said)


def test_the_rule_for_learning_rates_is_of_sgd_and_adam_has_the_papers() -> None:
    for rule in ("adam", "adamw"):
        assert settle(recipe("modern").replace(optimizer=rule), CIFAR)[0].learning_rate == 5e-4


def test_modern_is_what_the_method_page_says() -> None:
    c, _ = settle(recipe("modern"), CIFAR)
    assert (c.alpha, c.beta, c.gamma, c.cluster_start, c.cluster_lr) == (1, 0.5, 0.5, 0.85, 0.1)
    assert (c.optimizer, c.learning_rate, c.predictor_lr, c.weight_decay) == ("sgd", 0.1, 10, 5e-4)
    assert (c.schedule, c.tau_b, c.tau_b_end, c.view_scale) == ("cosine", 0.99, 1, 0.75)
    assert (c.head_init, c.prototype_init, c.codes_from, c.queue_size) == ("projector", "balanced", "target", 3584)
    assert (c.encoder, c.batch_size, c.epochs, c.n_transforms, c.projection_dim) == ("resnet18", 512, 1000, 100, 64)


def test_hidden_layers_are_compared_when_both_are_known() -> None:
    wide = recipe("modern").replace(cluster_hidden=4096)  # as a GPU would settle the other
    assert settle(wide, CIFAR)[0].projector_hidden == 4096
    with pytest.raises(UserError, match="cluster_hidden=4096"):
        settle(wide, dataclasses.replace(CIFAR, gpu=False))


@pytest.mark.parametrize("n", [2, 5, 30, 200, 1797, 5000, 10**6])
@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("side", [8, 28, 96, 146, 256])
def test_settling_works_for_any_set(n: int, gpu: bool, side: int) -> None:
    config, _ = settle(recipe("modern").replace(n_clusters=2), SetFacts(n, side, side + 7, gray=side == 28, gpu=gpu))
    assert config.batch_size is not None
    assert 2 <= config.batch_size <= n
    size = {146: 128, 256: 224}.get(side, side)
    assert config.image_size == size
    assert config.preset == ("gray" if side == 28 else "small" if size <= 64 else "natural")
    assert config.encoder == ("resnet18" if gpu else "light")


@pytest.mark.parametrize(
    ("side", "gpu", "chosen"),
    [
        (6, False, (8, "small", "small", "light")),
        (32, False, (32, "small", "small", "light")),
        (33, False, (33, "large", "small", "light")),
        (64, True, (64, "small", "small", "resnet18")),
        (65, True, (65, "large", "natural", "resnet18")),
        (128, True, (128, "large", "natural", "resnet18")),
        (256, True, (224, "large", "natural", "resnet18")),  # as the paper's sets: the middle of 256
    ],
)
def test_network_and_views_go_by_the_shorter_side(side: int, gpu: bool, chosen: tuple[int, str, str, str]) -> None:
    for height, width in ((side, side + 50), (side + 50, side)):
        c, _ = settle(recipe("modern"), SetFacts(1000, height, width, gray=False, gpu=gpu))
        assert (c.image_size, c.stem, c.preset, c.encoder) == chosen


@pytest.mark.parametrize(
    ("n", "side", "gpu", "epochs"),
    [
        (1000, 32, True, 1000),
        (120_000, 32, True, 500),
        (10**7, 32, True, 20),
        (1000, 32, False, 300),
        (100, 64, False, 1000),
        (10**6, 64, False, 20),
    ],
)
def test_more_images_are_seen_less_often(n: int, side: int, gpu: bool, epochs: int) -> None:
    assert settle(recipe("modern"), SetFacts(n, side, side, gray=False, gpu=gpu))[0].epochs == epochs


def test_what_is_settled_is_settled_by_the_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "settle", lambda config, facts: (config, [facts]))
    pixels = np.zeros((30, 3, 20, 28), np.uint8)
    images = ImageSet(pixels, [str(i) for i in range(30)])

    def facts(train_images: int | None = None) -> object:
        return run.settled(Config(device="cpu"), images, train_images)[1][0]

    assert facts() == facts(99) == SetFacts(30, 20, 28, gray=True, gpu=False)
    assert facts(7) == SetFacts(7, 20, 28, gray=True, gpu=False)
    pixels[29, 2, 5, 5] = 1
    assert facts() == SetFacts(30, 20, 28, gray=False, gpu=False)


def test_given_values_are_never_settled_over() -> None:
    given = recipe("modern").replace(epochs=3, batch_size=100, encoder="resnet50", preset="free")
    config, said = settle(given, CIFAR)
    assert (config.epochs, config.batch_size, config.encoder, config.preset) == (3, 100, "resnet50", "free")
    assert not any(line.startswith(("epochs", "batch_size", "encoder", "preset")) for line in said)


@pytest.mark.parametrize("name", RECIPES)
def test_a_config_shows_what_differs_from_the_defaults(name: str) -> None:
    assert repr(Config()) == "Config()"
    config = recipe(name)
    assert eval(repr(config), {"Config": Config}) == config
    assert "tau=" not in repr(config)
