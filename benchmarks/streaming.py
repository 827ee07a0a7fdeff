"""The full-set Sinkhorn on scores that are never in memory together.   python benchmarks/streaming.py --images 10000000

The scores are drawn once, into a file of 2 bytes each, and read from it part by part in every pass, as `fit` makes them from
its embeddings. Prints the seconds of drawing, of a pass that only reads, and of the Sinkhorn itself, its passes, the memory
that it took on top of what the process had before, and how far the clusters' shares are from equal ones, with and without it.
Arithmetic is float64, as in `fit`.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from concurl.objective.sinkhorn import streaming_scalings

PART = 4_096  # as in fit; larger parts took longer, and more memory


def draw(path: Path, images: int, clusters: int) -> None:
    """Cosines as after training, each image near one prototype; clusters of unequal size."""
    tilt = np.linspace(-0.1, 0.1, clusters, dtype=np.float32)
    rng = np.random.default_rng(0)
    with open(path, "wb") as file:
        for start in range(0, images, PART):
            rows = min(PART, images - start)
            cosines = 0.1 * rng.standard_normal((rows, clusters), dtype=np.float32) + tilt
            cosines[np.arange(rows), rng.integers(0, clusters, rows)] += 0.7
            cosines.astype(np.float16).tofile(file)


def scores(path: Path, images: int, clusters: int) -> Iterator[Tensor]:
    with open(path, "rb") as file:
        for start in range(0, images, PART):
            rows = min(PART, images - start)
            yield torch.from_numpy(np.fromfile(file, np.float16, rows * clusters)).view(rows, clusters).double()


def highest() -> float:
    """The most memory that this process ever had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10_000_000)
    parser.add_argument("--clusters", type=int, default=100)
    parser.add_argument("--epsilon", type=float, default=0.05)
    parser.add_argument("--threads", type=int, default=min(8, len(os.sched_getaffinity(0))))
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    N, K = given.images, given.clusters
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scores"
        begun = time.monotonic()
        draw(path, N, K)
        print(f"{N:,} x {K}, {given.threads} threads, torch {torch.__version__}")
        print(f"drawn in {time.monotonic() - begun:.1f} s: {path.stat().st_size / 2**20:,.0f} MiB")
        begun = time.monotonic()
        for part in scores(path, N, K):
            del part
        print(f"a pass that only reads: {time.monotonic() - begun:.1f} s")
        passes, before, begun = 0, highest(), time.monotonic()

        def chunks() -> Iterator[Tensor]:
            nonlocal passes
            passes += 1
            return scores(path, N, K)

        u = streaming_scalings(chunks, given.epsilon)
        seconds = time.monotonic() - begun
        print(f"scalings in {seconds:.1f} s: {passes} passes of {seconds / passes:.1f} s, {highest() - before:.0f} MiB")
        for what, scalings in (("without", torch.zeros(K)), ("with", u)):
            sums = sum(torch.softmax(part / given.epsilon + scalings, dim=1).sum(0) for part in scores(path, N, K))
            print(f"a cluster's share {what} them: off by up to {float((K * sums / N - 1).abs().max()):.1e}")


if __name__ == "__main__":
    main()
