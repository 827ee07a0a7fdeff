"""The estimator: scikit-learn's contract, and labels that do not depend on the batch."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import Tensor

from concurl import ConCURL, Config, estimator
from concurl.errors import UserError
from concurl.recipes import CPU_SIZE, recipe
from mean_colour import MeanColour

OPTIONS = {"epochs": 1}


def test_predict_equals_labels_alone_by_sevens_and_all_at_once(fitted: ConCURL, images: np.ndarray) -> None:
    np.testing.assert_array_equal(fitted.predict(images), fitted.labels_)
    sevens = [fitted.predict(images[i : i + 7]) for i in range(0, len(images), 7)]
    np.testing.assert_array_equal(np.concatenate(sevens), fitted.labels_)
    alone = [int(fitted.predict(images[i : i + 1])[0]) for i in range(0, len(images), 10)]
    np.testing.assert_array_equal(alone, fitted.labels_[::10])
    back = fitted.predict(images[::-1])
    np.testing.assert_array_equal(back[::-1], fitted.labels_)


def test_in_half_precision_labels_come_from_the_weights_that_were_learned(images: np.ndarray, tmp_path: Path) -> None:
    half = ConCURL(4, recipe="digits", options=OPTIONS | {"precision": "bfloat16"}).fit(images[:150])
    half.save(tmp_path / "model")
    for model in (half, ConCURL.load(tmp_path / "model")):
        np.testing.assert_array_equal(model.transform(images[:150]), half.embeddings_)
        np.testing.assert_array_equal(model.predict(images[:150]), half.labels_)


def test_probabilities_and_embeddings(fitted: ConCURL, images: np.ndarray) -> None:
    q = fitted.predict_proba(images)
    np.testing.assert_allclose(q.sum(1), 1, atol=1e-5)
    np.testing.assert_array_equal(q.argmax(1), fitted.labels_)
    np.testing.assert_allclose(q.mean(0), 0.1, atol=1e-4)  # the balance struck over the training set
    np.testing.assert_allclose(np.linalg.norm(fitted.transform(images), axis=1), 1, atol=1e-5)
    assert fitted.cluster_centers_.shape == (10, 64)


def test_uint8_floats_tensors_and_channels_are_the_same_images(fitted: ConCURL) -> None:
    bytes_ = np.random.default_rng(0).integers(0, 256, (20, 12, 12), dtype=np.uint8)
    labels = fitted.predict(bytes_)
    np.testing.assert_array_equal(fitted.predict(bytes_ / 255.0), labels)
    np.testing.assert_array_equal(fitted.predict(np.repeat(bytes_[..., None], 3, axis=3)), labels)
    np.testing.assert_array_equal(fitted.predict(torch.from_numpy(bytes_).unsqueeze(1)), labels)


@pytest.fixture(scope="module")
def pictures(images: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 of the images as files, one of them twice."""
    folder = tmp_path_factory.mktemp("pictures")
    for i in range(40):
        Image.fromarray(np.round(images[i] * 255).astype(np.uint8)).save(folder / f"{i:02d}.png")
    (folder / "copy.png").write_bytes((folder / "07.png").read_bytes())
    return folder


def test_a_list_of_files_has_its_labels_in_its_order(fitted: ConCURL, pictures: Path, tmp_path: Path) -> None:
    files = sorted(pictures.iterdir())
    label = dict(zip(files, fitted.predict(files), strict=True))
    assert len(set(label.values())) > 2
    np.testing.assert_array_equal(fitted.predict(pictures), list(label.values()))
    mixed = [files[i] for i in np.random.default_rng(0).permutation(41)] + [files[3], pictures / ".." / files[3]]
    label[mixed[-1]] = label[files[3]]
    (tmp_path / "list.txt").write_text("\n".join(map(str, mixed)))
    for source in (mixed, [str(path) for path in mixed], np.array(mixed), tmp_path / "list.txt"):
        np.testing.assert_array_equal(fitted.predict(source), [label[path] for path in mixed])
    q, z = fitted.predict_proba(mixed), fitted.transform(mixed)
    np.testing.assert_array_equal(q.argmax(1), [label[path] for path in mixed])
    np.testing.assert_allclose(z[mixed.index(files[7])], z[mixed.index(pictures / "copy.png")], atol=1e-6)


def test_training_on_a_list_does_not_hang_on_its_order(pictures: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = sorted(pictures.iterdir())
    model = ConCURL(3, recipe="digits", options=OPTIONS | {"batch_size": 16})
    first = clone(model).fit(files)
    mixed = [files[i] for i in np.random.default_rng(0).permutation(41)]
    assert "left out" not in caplog.text
    second = clone(model).fit([*mixed, pictures / "no.png"])
    assert "left out, and so without a row in labels_ (names_ has the others): no.png" in caplog.text
    back = [mixed.index(path) for path in files]
    np.testing.assert_array_equal(second.embeddings_[back], first.embeddings_)
    np.testing.assert_array_equal(second.labels_[back], first.labels_)
    assert second.names_ == [path.name for path in mixed]
    assert [skip.path for skip in second.skipped_] == ["no.png"]
    np.testing.assert_array_equal(second.predict(mixed), second.labels_)
    assert len(first.labels_) == len(first.probabilities_) == len(first.agreement_) == 41
    again = second.assign(mixed)
    np.testing.assert_allclose(again.confidence, second.confidence_, atol=1e-6)
    np.testing.assert_array_equal(again.agreement, second.agreement_)


def test_a_list_with_a_gap_is_refused_and_a_folder_with_one_is_not(
    fitted: ConCURL, pictures: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "new").mkdir()
    for i in range(5):
        (tmp_path / "new" / f"{i}.txt").write_text("no image")
    (tmp_path / "new" / "7.png").write_bytes((pictures / "07.png").read_bytes())
    listed = sorted((tmp_path / "new").iterdir())
    (tmp_path / "list.csv").write_text("path\n" + "\n".join(map(str, listed)))
    for source in (listed, tmp_path / "list.csv", str(tmp_path / "list.csv")):
        with pytest.raises(UserError, match=r"0\.txt \(not an image\), .*2\.txt \(not an image\) and 2 more"):
            fitted.predict(source)
    with pytest.raises(UserError, match=r"no\.png \(unreadable\)"):
        fitted.transform([listed[-1], tmp_path / "no.png"])
    np.testing.assert_array_equal(fitted.predict(tmp_path / "new"), fitted.predict(pictures)[7:8])
    assert "0.txt (not an image)" in caplog.text


@pytest.mark.parametrize("way", ["fit_predict", "fit_transform"])
def test_rows_alone_are_not_given_of_a_list_with_a_gap(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    files = sorted(pictures.iterdir())
    listed = [*files[:3], tmp_path / "no.png", *files[3:]]
    (tmp_path / "list.csv").write_text("path\n" + "\n".join(map(str, listed)))
    model = ConCURL(3, recipe="digits", options=OPTIONS | {"batch_size": 16})
    with monkeypatch.context() as untrained:
        untrained.setattr("concurl.runs.run.fit", lambda *_, **__: pytest.fail("it was trained"))
        for source in (listed, iter(listed), tmp_path / "list.csv"):
            with pytest.raises(UserError, match=r"no\.png \(unreadable\); take them off the list"):
                getattr(model, way)(source)
    shutil.copytree(pictures, tmp_path / "folder")
    (tmp_path / "folder" / "no.png").write_text("no image")
    rows = getattr(model, way)(files)
    assert len(rows) == 41  # a copy is no gap
    np.testing.assert_array_equal(getattr(model, way)(tmp_path / "folder"), rows)


def test_save_and_load(fitted: ConCURL, images: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    fitted.save("~/model")
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == ["model.json", "model.safetensors"]
    np.testing.assert_array_equal(ConCURL.load("~/model").predict(images), fitted.labels_)


def test_scikit_learns_contract(images: np.ndarray) -> None:
    model = ConCURL(7, recipe="digits", options=OPTIONS, random_state=3)
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(n_clusters=5).n_clusters == 5
    with pytest.raises(NotFittedError):
        model.predict(images)
    labels = model.fit_predict(images)
    assert model.fit(images) is model
    np.testing.assert_array_equal(model.labels_, labels)  # the same seed, whatever was drawn in between
    assert set(np.unique(labels)) <= set(range(5))


def test_an_encoder_and_views_from_outside(images: np.ndarray, tmp_path: Path) -> None:
    seen = []

    def views(batch: Tensor, ids: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        seen.append((batch.dtype, len(ids)))
        x = batch.float() / 255
        return x, x.flip(3)

    given = MeanColour()
    before = given.conv.weight.clone()
    model = ConCURL(4, recipe="digits", options=OPTIONS, encoder=given, views=views).fit(images)
    assert seen[0] == (torch.uint8, 64)
    model.save(tmp_path / "model")
    again = ConCURL.load(tmp_path / "model", encoder=given, device=torch.device("cpu"))
    np.testing.assert_array_equal(again.predict(images), model.labels_)
    assert torch.equal(given.conv.weight, before)  # a clone starts from it
    with pytest.raises(UserError, match=re.escape("given to ConCURL.load(..., encoder=...)")):
        ConCURL.load(tmp_path / "model")
    with pytest.raises(UserError, match="a module is needed"):
        ConCURL.load(tmp_path / "model", encoder="tiny")  # type: ignore[arg-type]


@pytest.fixture
def config_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Config]:
    """The Config that fit would train with."""

    class Asked(Exception):
        pass

    def train(images: Any, config: Config, **_: Any) -> None:
        raise Asked(config)

    monkeypatch.setattr("concurl.runs.run.fit", train)

    def ask(source: Any = None, **parameters: Any) -> Config:
        pixels = np.random.default_rng(0).integers(0, 256, (300, 12, 12), dtype=np.uint8)
        with pytest.raises(Asked) as caught:
            ConCURL(**parameters).fit(pixels if source is None else source)
        config: Config = caught.value.args[0]
        return config

    return ask


def test_a_recipe_brings_its_own_clusters_and_may_be_a_config(config_of: Callable[..., Config]) -> None:
    assert config_of(recipe="paper-imagenet-dogs").n_clusters == 15
    assert config_of(recipe="paper-imagenet-dogs", n_clusters=4).n_clusters == 4
    assert config_of().n_clusters == 10
    own = recipe("digits").replace(n_clusters=7, epochs=3)
    assert config_of(recipe=own, random_state=5) == config_of(
        recipe="digits", n_clusters=7, options={"epochs": 3}, random_state=5
    )
    assert clone(ConCURL(recipe=own)).recipe == own
    with pytest.raises(UserError, match="unknown recipe"):
        ConCURL(recipe=3).fit(np.zeros((9, 8, 8), dtype=np.uint8))  # type: ignore[arg-type]


def test_large_photos_are_made_small_enough_for_a_cpu(config_of: Callable[..., Config], tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    for i in range(8):
        Image.effect_noise((240, 160), 10 + i).save(tmp_path / "large" / f"{i}.png")
    options = {"device": "cpu", "batch_size": 8}
    assert config_of(tmp_path / "large", n_clusters=2, options=options).image_size == CPU_SIZE


def test_random_states_are_those_of_scikit_learn(config_of: Callable[..., Config]) -> None:
    assert config_of(random_state=np.int64(3)).seed == config_of(random_state=3).seed == 3
    for make in (np.random.RandomState, np.random.default_rng):
        state = make(0)
        drawn = [config_of(random_state=state).seed for _ in range(2)]
        assert drawn[0] != drawn[1]  # the state moves on
        assert drawn[0] == config_of(random_state=make(0)).seed
    assert config_of(random_state=None).seed != config_of(random_state=None).seed
    for wrong in (-1, 2**31, "x", 0.5, True):
        with pytest.raises(UserError, match="random_state="):
            ConCURL(random_state=wrong).fit(np.zeros((9, 8, 8), dtype=np.uint8))  # type: ignore[arg-type]


def test_a_loaded_model_knows_how_it_was_trained(images: np.ndarray, tmp_path: Path) -> None:
    model = ConCURL(4, recipe="digits", options=OPTIONS | {"tau": 0.2}, random_state=3).fit(images[:150])
    model.save(tmp_path / "model")
    again = ConCURL.load(tmp_path / "model")
    assert again.get_params()["random_state"] == 3
    np.testing.assert_array_equal(clone(again).fit(images[:150]).embeddings_, model.embeddings_)
    assert clone(again).set_params(n_clusters=5).fit(images[:150]).cluster_centers_.shape[0] == 5


@pytest.mark.parametrize(
    ("number", "ends"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit), (signal.SIGHUP, SystemExit)]
)
def test_an_interruption_is_no_error_to_be_caught(
    images: np.ndarray, number: signal.Signals, ends: type[BaseException]
) -> None:
    def views(batch: Tensor, ids: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        os.kill(os.getpid(), number)
        return batch / 255, batch / 255

    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("the tests are run under nohup")
    before = signal.getsignal(number)
    with pytest.raises(ends) as caught:
        ConCURL(3, recipe="digits", options=OPTIONS, views=views).fit(images)
    assert ends is KeyboardInterrupt or caught.value.code == 128 + number  # type: ignore[attr-defined]
    assert signal.getsignal(number) is before


def test_the_example_of_the_docstring_runs() -> None:
    found = doctest.testmod(estimator)
    assert found.attempted >= 5
    assert found.failed == 0
