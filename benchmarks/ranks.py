"""Does a fit by several processes follow the loss curve of one?   python benchmarks/ranks.py --ranks 2 [fit's options]

On one GPU the processes share it (torch then sends through gloo). Prints both curves, their largest difference and the
images per second of each.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from concurl.training.runlog import read_metrics


def curve(folder: Path, ranks: int, options: list[str]) -> list[dict[str, Any]]:
    start = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m", "concurl"]
    command = [sys.executable, *(start if ranks > 1 else ["-m", "concurl"]), "fit", *options, "-o", str(folder)]
    subprocess.run([*command, "--no-report", "--quiet"], check=True)
    return read_metrics(folder / "metrics.jsonl")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    given, options = parser.parse_known_args()
    options = options or ["digits", "--recipe", "digits", "--epochs", "10", "--compile", "off"]
    with tempfile.TemporaryDirectory() as folder:
        one, many = (curve(Path(folder) / str(n), n, options) for n in (1, given.ranks))
    print(f"epoch  1 process  {given.ranks} processes  difference  images/s")
    for a, b in zip(one, many, strict=True):
        speeds = f"{a['images_per_second']:9,.0f} {b['images_per_second']:9,.0f}"
        print(f"{a['epoch']:5}  {a['loss']:9.5f}  {b['loss']:11.5f}  {abs(a['loss'] - b['loss']):10.2e}  {speeds}")
    print(f"largest difference: {max(abs(a['loss'] - b['loss']) for a, b in zip(one, many, strict=True)):.2e}")


if __name__ == "__main__":
    main()
