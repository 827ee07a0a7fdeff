"""Runs under torchrun, and what becomes of them when a rank is killed again and again.

The tests use it; and by itself, without pytest:   PYTHONPATH=src python tests/kills.py --ranks 2 --kills 20
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from concurl.training.checkpoint import checkpoints

OPTIONS = {
    "encoder": "tiny",
    "image-size": 8,
    "preset": "small",
    "batch-size": 8,
    "learning-rate": 0.1,
    "projector-hidden": 16,
    "projector-dim": 8,
    "cluster-hidden": 16,
    "embedding-dim": 8,
    "projection-dim": 4,
    "n-transforms": 5,
    "monitor-images": 8,
    "device": "cpu",
}
SAID = Path("torchrun.log")  # in the current folder
TINY = [*(f"--{name}={value}" for name, value in OPTIONS.items()), "--quiet", "--no-report"]


def make_photos(folder: Path) -> Path:
    """26 pictures of three colours, with some noise."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(26):
        pixels = np.zeros((8, 8, 3)) + 200 * np.eye(3)[i % 3] + rng.integers(0, 50, (8, 8, 3))
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i:02d}.png")
    return folder


def torchrun(ranks: int, *arguments: str, restarts: int = 0) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command += [f"--max-restarts={restarts}", "--monitor-interval=0.1", "-m", "concurl", *arguments]
    with SAID.open("wb") as said:  # and not a pipe: nobody reads it meanwhile, and a full one holds torchrun up
        return subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)


def stop(process: subprocess.Popen[bytes]) -> None:
    """By SIGTERM, which torchrun hands on: a SIGKILL would leave its ranks behind, at work."""
    if process.poll() is None:
        process.terminate()
        process.wait()


def finished(process: subprocess.Popen[bytes]) -> str:
    try:
        process.wait()
    finally:
        stop(process)
    said = SAID.read_text(errors="replace")
    assert process.returncode == 0, said[-3000:]
    return said


def rows(folder: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(folder, "metrics.jsonl").read_text().splitlines()]


def losses(folder: str) -> list[float]:
    return [row["loss"] for row in rows(folder)]


def weights(folder: str) -> str:
    return str(json.loads(Path(folder, "model", "model.json").read_text())["sha256"])


def newest_step(folder: str) -> int:
    found = checkpoints(Path(folder, "checkpoints"))
    return int(found[-1].name.removeprefix("step-")) if found else -1


def children(process: subprocess.Popen[bytes]) -> list[int]:
    """Those that still live."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == process.pid and state != "Z":
                found.append(int(path.parent.name))
    return found


def killed_at_random(
    folder: str, command: list[str], *, ranks: int, kills: int, last: int, seed: int, pause: float = 0.2
) -> list[int]:
    """Run under torchrun and kill one rank `kills` times, at random moments of the first four fifths of `last` steps.

    A kill comes up to `pause` seconds after a checkpoint. The steps of the newest checkpoint at each kill.
    """
    rng = random.Random(seed)
    moments = sorted(rng.randrange(int(0.8 * last)) for _ in range(kills))
    process = torchrun(ranks, *command, restarts=kills)
    steps: list[int] = []
    try:
        while process.poll() is None and len(steps) < kills:
            time.sleep(0.02)
            newest = newest_step(folder)
            if newest > max([moments[len(steps)], *steps[-1:]]):
                time.sleep(pause * rng.random())
                workers = children(process)
                if len(workers) == ranks:  # fewer: torchrun is still clearing up after the last kill
                    os.kill(rng.choice(workers), signal.SIGKILL)
                    steps.append(newest)
        assert len(steps) == kills, SAID.read_text(errors="replace")[-3000:]
        finished(process)
        return steps
    finally:
        stop(process)


def compare(photos: Path, *, ranks: int, kills: int, epochs: int) -> list[int]:
    """A calm run and a killed one, in the current folder: the same weights and the same losses, to the last bit.

    A checkpoint each epoch, however fast the machine: so few epochs have room for all kills. They must be few, as a
    step of four ranks on two cores takes half a second: in some 60 all-reduces ranks wait for each other's turn.
    """
    fit = ["fit", str(photos), "-k", "3", *TINY, "--epochs", str(epochs)]
    fit += ["--checkpoint-minutes", "0", "--checkpoint-epochs", "1"]
    finished(torchrun(ranks, *fit, "-o", "calm"))
    last, epoch = newest_step("calm"), 60 * rows("calm")[-1]["minutes"] / epochs
    command = [*fit, "-o", "killed"]
    steps = killed_at_random("killed", command, ranks=ranks, kills=kills, last=last, seed=ranks, pause=epoch)
    assert weights("killed") == weights("calm")
    assert losses("killed") == losses("calm")
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=100)
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        os.chdir(folder)
        steps = compare(make_photos(Path(folder, "photos")), ranks=given.ranks, kills=given.kills, epochs=given.epochs)
        last = newest_step("killed")
        print(f"{given.ranks} ranks, {given.kills} kills after the checkpoints of steps {steps} of {last}")
        print(f"weights and losses as without kills, to the last bit: {weights('killed')[:16]}")
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
