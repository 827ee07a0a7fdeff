"""Whole passes: training from a streamed store, memory over epochs, and labelling; each beside its limit."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from concurl.clustering.assign import assign
from concurl.config import Config
from concurl.data.storage.feed import Feed, Resident, Streaming
from concurl.network.embed import CHUNK_CPU, CHUNK_GPU
from concurl.network.trained import TrainedModel
from concurl.training.trainer import Trainer
from forms import synthetic
from timing import GPU, about, speed, timed, wait

EPOCHS = 4  # the first warms up


def stream_rows(config: Config) -> list[dict[str, Any]]:
    """Training with the set on the device, and read ahead from a file."""
    images = synthetic(config, 32_768 * 9)  # at 96 px 32,768 images, 0.9 GB
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "images.bin"
        images.tofile(path)
        store = np.memmap(path, np.uint8, "r", shape=images.shape)
        for form, kind in (("resident", Resident), ("streamed", Streaming)):
            trainer = Trainer(config.replace(epochs=EPOCHS, monitor_every=EPOCHS), store)
            trainer.feed = feed = kind(store, trainer.arithmetic.device)
            rows.append(_epochs(trainer, feed, config) | {"group": "stream", "form": form})
    return rows


def memory_rows(config: Config) -> list[dict[str, Any]]:
    """Memory after each of some epochs, as torch counts it on a GPU and the system on a CPU."""
    trainer = Trainer(config.replace(epochs=EPOCHS), synthetic(config, 16_384))
    series = []
    trainer.metrics.append = lambda row: series.append(_memory())  # type: ignore[method-assign]
    trainer.fit()
    form = " ".join(f"{gib:.3f}" for gib in series)
    return [{"group": "memory", "form": form, **about(config), "peak_GiB": max(series)}]


def predict_rows(config: Config) -> list[dict[str, Any]]:
    """Labels, confidences and agreement of a set in memory, beside the encoder's forward pass alone."""
    assert config.image_size is not None
    images = synthetic(
        config, 32 * config.image_size**2
    )  # 32,768 of any size, so that what is paid once does not count
    trainer = Trainer(config.replace(compile="off"), images)
    model, device, autocast = trainer.model.eval(), trainer.arithmetic.device, trainer.arithmetic.autocast
    chunk = CHUNK_GPU if GPU else CHUNK_CPU
    x = torch.randn(chunk, 3, *images.shape[2:], device=device).contiguous(memory_format=torch.channels_last)

    @torch.no_grad()
    def forward() -> None:
        with torch.autocast(device.type, autocast or torch.bfloat16, enabled=autocast is not None):
            model.online(x)

    centres, scalings = model.prototypes.detach(), torch.zeros(config.n_clusters, device=device)
    trained = TrainedModel(config, model, "z", centres, trainer.A, scalings, autocast)
    rows = []
    calls = {"forward alone": (forward, chunk), "labels": (lambda: assign(trained, images), len(images))}
    for form, (call, n) in calls.items():
        columns = about(config) | {"batch": chunk, "M": config.n_transforms} | speed(*timed(call, 0.5), n)
        rows.append({"group": "predict", "form": form, **columns})
    return rows


def _epochs(trainer: Trainer, feed: Feed, config: Config) -> dict[str, Any]:
    """The speed of whole epochs, feed and steps, without the looks between them."""
    assert config.batch_size is not None
    trainer.model.train()
    device = trainer.arithmetic.device
    settings, number = trainer.schedule.table(0, 1).to(device)[0], torch.zeros((), dtype=torch.int64, device=device)
    seconds = []
    for _ in range(EPOCHS):
        wait()
        started, ids = time.perf_counter(), torch.randperm(trainer.n_images)
        for images, batch in feed.batches(ids, config.batch_size):
            trainer.take_step(images, batch, number, settings, True)
        wait()
        seconds.append((time.perf_counter() - started) / trainer.steps_per_epoch)
    return about(config) | speed(float(np.mean(seconds[1:])), float(np.std(seconds[1:])), config.batch_size)


def _memory() -> float:
    if GPU:
        return torch.cuda.memory_allocated() / 2**30
    with open("/proc/self/statm") as table:
        return int(table.read().split()[1]) * 4096 / 2**30
