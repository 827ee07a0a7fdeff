"""The estimator in a program that uses torch itself: neither disturbs the other."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import Tensor, nn

from concurl import ConCURL
from concurl.training.device import torch_of_its_own
from mean_colour import MeanColour

OPTIONS = {"epochs": 1}


def test_the_global_generator_neither_matters_nor_moves(images: np.ndarray) -> None:
    torch.manual_seed(1)
    first = ConCURL(4, recipe="digits", options=OPTIONS).fit(images[:150])
    torch.manual_seed(2)
    before = torch.get_rng_state()
    second = ConCURL(4, recipe="digits", options=OPTIONS).fit(images[:150])
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(first.embeddings_, second.embeddings_)


def test_the_global_generators_of_gpus_do_not_move(images: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    reset: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", reset.append)  # what torch.manual_seed calls
    ConCURL(4, recipe="digits", options=OPTIONS).fit(images[:150])
    assert reset == []


class Dropping(MeanColour):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(super().forward(x), 0.5, self.training)


def noisy(batch: Tensor, ids: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    x = batch / 255
    return x + torch.randn_like(x), x + torch.randn_like(x)


@pytest.mark.parametrize("given", [{"encoder": Dropping()}, {"views": noisy}], ids=["encoder", "views"])
def test_what_a_user_s_encoder_and_views_draw_follows_the_seed(images: np.ndarray, given: dict[str, Any]) -> None:
    model = ConCURL(4, recipe="digits", options=OPTIONS, **given)
    first = clone(model).fit(images[:150])
    before = torch.get_rng_state()
    second, other = clone(model).fit(images[:150]), clone(model).set_params(random_state=1).fit(images[:150])
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(first.embeddings_, second.embeddings_)
    assert not np.array_equal(first.embeddings_, other.embeddings_)


@contextmanager
def default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def process_group() -> Iterator[None]:
    """The caller's own: fit may neither wait for its other processes nor end it."""
    dist = torch.distributed
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
        assert dist.is_initialized()
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


@pytest.mark.parametrize(
    "around",
    [
        default_dtype(),
        process_group(),
        torch.device("meta"),
        torch.inference_mode(),
        torch.no_grad(),
        torch.autocast("cpu"),
    ],
    ids=["float64", "process_group", "meta", "inference", "no_grad", "autocast"],
)
def test_what_the_caller_does_with_torch_is_the_caller_s(
    fitted: ConCURL, images: np.ndarray, tmp_path: Path, around: AbstractContextManager[None]
) -> None:
    with around:
        before = torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled()
        again = clone(fitted).fit(images)
        fitted.save(tmp_path / "model")
        labels = [fitted.predict(images), ConCURL.load(tmp_path / "model").predict(images)]
        assert (torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled()) == before
    np.testing.assert_array_equal(again.embeddings_, fitted.embeddings_)
    np.testing.assert_array_equal(labels, [fitted.labels_] * 2)


def test_torch_s_own_settings_are_as_they_were(
    fitted: ConCURL, images: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def settings() -> list[object]:
        cudnn = torch.backends.cudnn
        return [torch.get_num_threads(), torch.get_float32_matmul_precision(), cudnn.allow_tf32, cudnn.benchmark]

    def as_for_a_gpu() -> int:  # what `Arithmetic.of` sets there, and one core
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = not tf32, True
        return 1

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    threads, tf32 = torch.get_num_threads(), torch.backends.cudnn.allow_tf32
    monkeypatch.setattr("concurl.training.device.usable_cores", as_for_a_gpu)
    torch.set_num_threads(2)
    try:
        before = settings()
        fitted.save(tmp_path / "model")
        for work in (
            lambda: ConCURL(3, recipe="digits", options=OPTIONS).fit(images),
            lambda: fitted.predict(images),
            lambda: ConCURL.load(tmp_path / "model"),
        ):
            work()
            assert settings() == before
    finally:
        torch.set_num_threads(threads)


def test_threads_do_not_meddle_with_each_other(fitted: ConCURL, images: np.ndarray) -> None:
    with ThreadPoolExecutor(4) as threads:
        several = list(threads.map(lambda _: clone(fitted).fit(images), range(6)))
        labels = list(threads.map(lambda _: several[0].predict(images), range(24)))
    for other in several:
        assert not other.trained_.model.training  # or one thread would end what another is about
        np.testing.assert_array_equal(other.embeddings_, fitted.embeddings_)
    np.testing.assert_array_equal(labels, [fitted.labels_] * 24)


def test_the_caller_s_settings_come_back_with_the_last_thread_that_leaves() -> None:
    with default_dtype(), ThreadPoolExecutor(1) as thread:
        second = torch_of_its_own()
        with torch_of_its_own():
            thread.submit(second.__enter__).result()
        during = torch.get_default_dtype()
        thread.submit(second.__exit__, None, None, None).result()
        after = torch.get_default_dtype()
    assert (during, after) == (torch.float32, torch.float64)
