"""That the memory of one step on a CPU is still there for the next one."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

STEPS = """
import resource

import numpy as np
import torch

from concurl.config import Config
from concurl.training.trainer import Trainer

config = Config(
    encoder="light", stem="large", image_size=64, view_scale=1.0, preset="none", batch_size=64, epochs=20, device="cpu"
)
images = np.zeros((64, 3, 64, 64), np.uint8)
trainer, seen = Trainer(config, images), []
take_step = trainer.take_step


def counted(*given):
    losses = take_step(*given)
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1])
    seen.append((resource.getrusage(resource.RUSAGE_SELF).ru_minflt, resident))
    return losses


trainer.take_step = counted
trainer.fit()
with open("/proc/self/statm") as file:
    resident = int(file.read().split()[1])
print(seen[-1][0] - seen[9][0], seen[-1][1] - resident)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another malloc")
def test_a_step_finds_the_memory_of_the_one_before_and_returns_it_at_the_end() -> None:
    """In pages; each of these steps uses some 20,000 of them."""
    plain = {name: value for name, value in os.environ.items() if "MALLOC" not in name} | {"OMP_NUM_THREADS": "1"}
    faults, returned = _pages(plain)
    default, _ = _pages(plain | {"MALLOC_TRIM_THRESHOLD_": "131072"})  # as small as glibc begins with, and so chosen
    if default < 10_000:
        pytest.skip("huge pages, say: nothing to gain here")
    assert faults < default / 10
    assert returned > 2_000


def _pages(environment: dict[str, str]) -> list[int]:
    """Faults in the last ten of twenty steps, and what the process has given back when training is over."""
    done = subprocess.run([sys.executable, "-c", STEPS], env=environment, capture_output=True, text=True, check=True)
    return [int(pages) for pages in done.stdout.split()]
