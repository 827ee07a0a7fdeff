"""Does a fit by several processes follow the loss curve of one?   python benchmarks/ranks.py --ranks 2 [fit's options]

On one GPU the processes share it (torch then sends through gloo). Two yardsticks stand beside the comparison: how far
two runs of one process, alike in everything, come apart (on a CPU: not at all), and on a GPU how far the run in
float32 is from the one in bfloat16. All without torch.compile, which several processes do not use.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from concurl.training.runlog import read_metrics
from plainly import plainly

DEFAULTS = ["--recipe", "digits", "--epochs", "4", "--compile", "off", "--no-report", "--quiet"]
Curve = list[dict[str, Any]]  # metrics.jsonl


def curve(folder: Path, ranks: int, options: list[str]) -> Curve:
    start = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m", "concurl"]
    command = [sys.executable, *(start if ranks > 1 else ["-m", "concurl"]), "fit", *options, "-o", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return read_metrics(folder / "metrics.jsonl")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--source", default="digits", help="as in concurl fit")
    given, others = parser.parse_known_args()
    options = [given.source, *DEFAULTS, *others]  # what is given last holds
    runs: dict[str, tuple[int, list[str]]] = {
        "1 process": (1, options),
        f"{given.ranks} processes": (given.ranks, options),
        "1 again": (1, options),
    }
    if torch.cuda.is_available():
        runs["1, float32"] = (1, [*options, "--precision", "float32"])
    with tempfile.TemporaryDirectory() as folder:
        curves = {name: curve(Path(folder) / name.replace(" ", "-"), *run) for name, run in runs.items()}
    show(curves)


def show(curves: dict[str, Curve]) -> None:
    print("loss by epoch")
    print("epoch", *(f"{name:>12}" for name in curves))
    for epoch in zip(*curves.values(), strict=True):
        print(f"{epoch[0]['epoch']:5}", *(f"{row['loss']:12.5f}" for row in epoch))
    print("images per second, epochs after the first")
    speeds = ([row["images_per_second"] for row in rows[1:] or rows] for rows in curves.values())
    print("     ", *(f"{sum(some) / len(some):12,.0f}" for some in speeds))
    (_, one), *others = curves.items()
    for name, rows in others:
        apart = [abs(a["loss"] - b["loss"]) for a, b in zip(one, rows, strict=True)]
        print(
            f"largest difference of an epoch's loss, 1 process to {name}: {max(apart):.2e} (first epoch: {apart[0]:.2e})"
        )


if __name__ == "__main__":
    plainly(main)
