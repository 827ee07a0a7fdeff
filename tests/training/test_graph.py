"""The fast forms of a step take the same steps; where compilation fails, training goes on without it."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

from concurl.config import Config
from concurl.training.trainer import Trainer

TINY = Config(
    n_clusters=3,
    encoder="tiny",
    stem="small",
    image_size=8,
    preset="small",
    projector_hidden=16,
    projector_dim=8,
    cluster_hidden=16,
    embedding_dim=8,
    projection_dim=4,
    n_transforms=5,
    batch_size=8,
    epochs=2,
    cluster_start=0.5,
    compile="on",
    device="cpu",
)
IMAGES = np.random.default_rng(0).integers(0, 256, (16, 3, 8, 8), dtype=np.uint8)


def curve(config: Config) -> list[float]:
    trainer = Trainer(config, IMAGES)
    trainer.fit()
    return [row["loss"] for row in trainer.metrics.rows]


def test_a_failing_compiler_is_named_once_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(function, **settings):
        def call(*args):
            raise RuntimeError("no compiler on this machine\nmore text")

        return call

    plain = curve(TINY.replace(compile="off"))
    monkeypatch.setattr(torch, "compile", broken)
    with caplog.at_level(logging.WARNING, logger="concurl"):
        assert curve(TINY) == plain
    said = [record.message for record in caplog.records if "torch.compile failed" in record.message]
    assert said == ["torch.compile failed (no compiler on this machine): going on without it"]


@pytest.mark.parametrize("micro_batch", [None, 4])
def test_compiled_steps_are_the_same_steps(micro_batch: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    config = TINY.replace(micro_batch=micro_batch)
    real, backends = torch.compile, []

    def traced(function, **settings):
        backends.append(settings)
        return real(function, backend="aot_eager", **settings)  # everything but the slow generation of kernels

    plain = curve(config.replace(compile="off"))
    monkeypatch.setattr(torch, "compile", traced)
    assert curve(config) == pytest.approx(plain, rel=1e-4)
    assert len(backends) == 2
