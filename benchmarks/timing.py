"""Seconds per call: a warm-up, then several windows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

WINDOWS = 5
GPU = torch.cuda.is_available()


def timed(take: Callable[[], Any], seconds: float = 0.5) -> tuple[float, float]:
    """Mean and deviation over WINDOWS windows of the seconds one call takes."""
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


def wait() -> None:
    if GPU:
        torch.cuda.synchronize()
