"""Seconds per call, after a warm-up, and the columns that all timed rows share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from concurl.config import Config

WINDOWS = 5
GPU = torch.cuda.is_available()


def timed(take: Callable[[], Any], seconds: float = 0.5) -> tuple[float, float]:
    """Mean and standard deviation, over WINDOWS windows, of the seconds that a call takes."""
    for _ in range(6):
        take()
    wait()
    started = time.perf_counter()
    take()
    wait()
    calls = max(3, int(seconds / max(1e-5, time.perf_counter() - started)))
    windows = []
    for _ in range(WINDOWS):
        started = time.perf_counter()
        for _ in range(calls):
            take()
        wait()
        windows.append((time.perf_counter() - started) / calls)
    return float(np.mean(windows)), float(np.std(windows))


def about(config: Config) -> dict[str, Any]:
    """The columns that say what was trained."""
    return {"encoder": config.encoder, "px": config.image_size, "batch": config.batch_size}


def speed(mean: float, deviation: float, images: int) -> dict[str, float]:
    """The columns of a call on so many images that takes `mean` seconds."""
    return {"ms": 1e3 * mean, "ms_std": 1e3 * deviation, "images_per_s": images / mean}


def wait() -> None:
    if GPU:
        torch.cuda.synchronize()
