"""The full-set Sinkhorn on scores that are never in memory together.   python benchmarks/streaming.py --images 10000000

Scores are drawn anew, part by part, in every pass. Prints passes, seconds, the memory that the passes took on top of
torch's own, and how far the scalings of the first images, streamed, are from those computed in memory.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator

import torch
from torch import Tensor

from concurl.objective.sinkhorn import sinkhorn, streaming_scalings

PART = 65_536


def scores(images: int, clusters: int) -> Iterator[Tensor]:
    """Cosines with clusters of unequal size."""
    tilt = torch.linspace(-0.1, 0.1, clusters)
    for number, start in enumerate(range(0, images, PART)):
        generator = torch.Generator().manual_seed(number)
        yield 0.1 * torch.randn(min(PART, images - start), clusters, generator=generator) + tilt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=10_000_000)
    parser.add_argument("--clusters", type=int, default=100)
    parser.add_argument("--epsilon", type=float, default=0.05)
    given = parser.parse_args()
    passes = 0

    def chunks() -> Iterator[Tensor]:
        nonlocal passes
        passes += 1
        return scores(given.images, given.clusters)

    before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    streaming_scalings(chunks, given.epsilon)
    seconds, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{given.images:,} x {given.clusters}: {passes} passes, {seconds:.0f} s, {(after - before) / 1024:.0f} MiB")
    few = min(given.images, 100_000)
    streamed = streaming_scalings(lambda: scores(few, given.clusters), given.epsilon)
    whole = sinkhorn(torch.cat(list(scores(few, given.clusters))).double(), given.epsilon, 1000)[1]
    print(f"of {few:,} images, streamed against in memory: {float((streamed - whole).abs().max()):.1e}")


if __name__ == "__main__":
    main()
