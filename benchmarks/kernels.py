"""Where a step's time goes on the GPU: the kernels of a few steps, added up by what they are for."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from concurl.config import Config
from forms import build
from timing import about

STEPS = 10

# A kernel belongs to the first kind whose pattern its name matches. The compiler names kernels after the operations in them.
KINDS = {
    "convolutions": "fprop|dgrad|wgrad|conv|cudnn|implicit",
    "batch norm and what is fused with it": "batch_norm|var_mean",
    "optimiser and target": "multi_tensor|foreach|adam|sgd|lerp",
    "matrix products": "gemm|nvjet|cutlass|cublas|splitk|_mm_",
    "copies and changes of layout": "memcpy|memset|copy|nchwtonhwc|nhwctonchw|elementwise_kernel|cat",
}
OTHERS = "views, codes, losses and the rest"


def kind_of(name: str) -> str:
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, name, re.IGNORECASE)), OTHERS)


def profile_rows(config: Config) -> list[dict[str, Any]]:
    """A row for each kind of kernel, milliseconds a step; then the ten that take longest, each with its name."""
    take = build(config, "step")
    for _ in range(10):
        take()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        for _ in range(STEPS):
            take()
        torch.cuda.synchronize()
    times: Counter[str] = Counter()
    for event in seen.key_averages():
        if str(event.device_type).endswith("CUDA"):
            times[event.key] += event.self_device_time_total / 1e3 / STEPS
    kinds: Counter[str] = Counter()
    for name, ms in times.items():
        kinds[kind_of(name)] += ms
    rows = [(kind, ms) for kind, ms in kinds.most_common()] + [(name[:80], ms) for name, ms in times.most_common(10)]
    return [{"group": "profile", "form": form, **about(config), "ms": ms} for form, ms in rows]
