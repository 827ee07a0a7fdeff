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
from concurl.training.device import torch_of_its_own
from concurl.training.trainer import Trainer

config = Config(
    encoder="light", stem="large", image_size=64, view_scale=1.0, preset="none", batch_size=64, epochs=20, device="cpu"
)
images = np.zeros((64, 3, 64, 64), np.uint8)


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])


with torch_of_its_own():
    trainer = Trainer(config, images)
    settings, batch = trainer.schedule.table(0, 20), (torch.from_numpy(images), torch.arange(64))

    def steps(first: int, end: int) -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for number in range(first, end):
            trainer.take_step(*batch, torch.tensor(number), settings[number], False)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    steps(0, 10)
    faults, training = steps(10, 20), resident()
print(faults, training - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another malloc")
def test_a_step_finds_the_memory_of_the_one_before_and_returns_it_at_the_end() -> None:
    """In pages; each of these steps uses some 20,000 of them."""
    chosen = {"OMP_NUM_THREADS": "1"} | {name: value for name, value in os.environ.items() if "MALLOC" not in name}
    asks = {"MALLOC_TRIM_THRESHOLD_": "131072"}  # as small as glibc begins with
    faults, returned = _pages(chosen)
    default, _ = _pages(chosen | asks)
    assert default > 10_000, "else there is nothing to gain, and this module can go"
    assert faults < default / 10
    assert returned > 2_000


def _pages(environment: dict[str, str]) -> list[int]:
    done = subprocess.run([sys.executable, "-c", STEPS], env=environment, capture_output=True, text=True, check=True)
    return [int(pages) for pages in done.stdout.split()]
