"""What the estimator cannot take is told so, in one line and before any training."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

from concurl import ConCURL
from concurl.errors import UserError
from mean_colour import MeanColour

OPTIONS = {"epochs": 1}


def test_wrong_arrays_are_named() -> None:
    """All kinds of them: tests/data/test_arrays.py."""
    with pytest.raises(UserError, match=r"shape \(5, 5\)"):
        ConCURL(2, recipe="digits", options=OPTIONS).fit(np.zeros((5, 5)))


def test_unknown_options_and_recipes() -> None:
    for options in (["epochs"], "epochs=1", {1: 2}):
        with pytest.raises(UserError, match="a dict by names is needed"):
            ConCURL(2, options=options).fit(np.zeros((9, 8, 8), dtype=np.uint8))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="did you mean epochs"):
        ConCURL(2, options={"epoch": 1}).fit(np.zeros((9, 8, 8), dtype=np.uint8))
    with pytest.raises(UserError, match="did you mean digits"):
        ConCURL(2, recipe="digit").fit(np.zeros((9, 8, 8), dtype=np.uint8))


def test_options_that_are_parameters_are_told_their_place() -> None:
    for options, says in (({"seed": 3}, "random_state=3"), ({"n_clusters": 4}, "n_clusters=4")):
        with pytest.raises(UserError, match=says):
            ConCURL(2, options=options).fit(np.zeros((9, 8, 8), dtype=np.uint8))


class Maps(MeanColour):
    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)


class Pair(MeanColour):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return x, x


@pytest.mark.parametrize(
    ("encoder", "says"),
    [
        ("resnet18", "by name is options={'encoder': 'resnet18'}"),
        (nn.Identity(), "Identity: it needs num_features"),
        (MeanColour, "MeanColour: an nn.Module is needed"),
        (Maps(), "a tensor of shape (2, 12, 10, 10); by its num_features it should be (2, 12)"),
        (Pair(), "gives tuple; by its num_features it should be (2, 12)"),
        (MeanColour().double(), "fails on images of shape (2, 3, 12, 12): "),
    ],
)
def test_what_is_no_encoder_is_told_what_is(images: np.ndarray, encoder: object, says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        ConCURL(3, recipe="digits", options=OPTIONS, encoder=encoder).fit(images)  # type: ignore[arg-type]


class OneSize(nn.Module):
    """As a vision transformer is: for images of 16 pixels alone."""

    num_features = 12

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3 * 16 * 16, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.flatten(1))


def test_an_encoder_for_one_size_is_told_how_large_views_are() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), dtype=np.uint8)
    with pytest.raises(UserError, match=r"fails on images of shape \(2, 3, 12, 12\): .* options=\{'view_scale': 1\}"):
        ConCURL(3, options=OPTIONS, encoder=OneSize()).fit(pixels)
    own = ConCURL(3, options=OPTIONS, encoder=OneSize(), views=lambda batch, ids, step: (batch / 255, batch / 255))
    for model in (own, ConCURL(3, options=OPTIONS | {"view_scale": 1}, encoder=OneSize())):
        assert len(model.fit(pixels).labels_) == 40


@pytest.mark.parametrize(
    ("views", "says"),
    [
        ("natural", "views='natural': a callable"),
        (lambda batch, ids, step: None, "it gave NoneType"),
        (lambda batch, ids, step: (), "it gave none"),
        (lambda batch, ids, step: (batch / 255 for _ in range(2)), "it gave generator"),
        (lambda batch, ids, step: (batch.numpy() / 255, batch.numpy() / 255), "it gave ndarray, ndarray"),
        (lambda batch, ids, step: (batch, batch), "must give 2 tensors of float32"),
        (lambda batch, ids, step: (batch.double(), batch.double()), "it gave torch.float64 (64, 3, 12, 12), "),
        (lambda batch, ids, step: (batch[1:] / 255, batch[1:] / 255), "it gave torch.float32 (63, 3, 12, 12), "),
        (lambda batch, ids, step: (batch[:, :1] / 255, batch[:, :1] / 255), "all of one shape (64, 3, size, size)"),
        (lambda batch, ids, step: (batch / 255, batch[..., 1:] / 255), "all of one shape (64, 3, size, size)"),
    ],
)
def test_what_makes_no_views_is_told_so(images: np.ndarray, views: Any, says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        ConCURL(3, recipe="digits", options=OPTIONS, views=views).fit(images)


def test_a_word_too_many_is_not_passed_over(images: np.ndarray) -> None:
    with pytest.raises(TypeError, match="sample_weight"):
        ConCURL(3).fit_predict(images, sample_weight=np.ones(300))  # type: ignore[call-arg]
