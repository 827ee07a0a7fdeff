"""concurl suggest"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from concurl.amounts import counted
from concurl.commands.images import open_again, run_of
from concurl.commands.options import Parser
from concurl.commands.refusals import check_least, check_run
from concurl.config import Config, filled
from concurl.errors import UserError, call
from concurl.progress import stages
from concurl.runs.provenance import Provenance

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger("concurl")

WEAK = 0.8  # the best stability, below which no number of clusters stands out


def main(argv: list[str]) -> int:
    """How many clusters? Tries each K on a run's features, says how stable its groups are (1: fully), and suggests one."""
    parser = Parser(prog="concurl suggest", description=main.__doc__, example="runs/photos")
    parser.add_argument("run", type=Path, help="folder of a run; its own K does not matter")
    parser.add_argument("--up-to", type=int, default=30, metavar="K", help="the largest K to try (default: 30)")
    parser.add_argument("--images", type=int, default=4096, metavar="N", help="images to look at (default: 4096)")
    parser.add_shared("--source", "--device", "--quiet")
    given = parser.parse(argv)
    check_run(given.run)
    check_least("--images", given.images, 8)
    check_least("--up-to", given.up_to, 2)
    from concurl.clustering.stability import stabilities
    from concurl.report.verdict import trouble_of

    config, provenance = run_of(given.run, given.moved)
    config = config.replace(device=given.device)
    v = _embeddings(given, config, provenance)
    most = min(given.up_to, len(v) // 4)  # a half then has two images for a cluster
    progress, found = stages(), {}
    for k, stability in stabilities(v, range(2, most + 1), seed=config.seed):
        found[k] = stability
        progress("suggest", len(found), most - 1)
    print("  K  stability")
    for k, stability in found.items():
        print(f"{k:3}  {stability:9.3f}  {'#' * round(40 * max(0.0, stability))}")
    _print_advice(found, given, config)
    # Groups by colour and light can be stable, too: features that are not ready propose a number as firmly as good ones.
    if trouble := trouble_of(given.run):
        log.warning("the run is not healthy (%s): if it was too short, this says little about its images", trouble)
    return 0


def _embeddings(given: argparse.Namespace, config: Config, provenance: Provenance) -> Tensor:
    """The target network's embeddings of a fixed sample of the run's images, from before clustering began."""
    import torch

    from concurl.data.batches import sample
    from concurl.data.storage.subset import pick
    from concurl.network.embed import embed
    from concurl.runs.features import feature_model
    from concurl.training.device import Arithmetic

    arithmetic = Arithmetic.of(config)
    model = feature_model(given.run, config).to(arithmetic.device)
    images = open_again(provenance, config).images.images
    some = pick(images, sample(config.seed, len(images), given.images).numpy())
    if len(some) < 8:
        raise UserError(f"{given.run} has {counted(len(some), 'image')}: at least 8 are needed")
    size, autocast = filled(config.image_size), arithmetic.autocast
    parts = embed(model, some, image_size=size, sobel=config.sobel, autocast=autocast, branches=["target"])
    return torch.cat([part["target"].v for part in parts])


def _print_advice(found: dict[int, float], given: argparse.Namespace, config: Config) -> None:
    from concurl.clustering.stability import standing_out

    if max(found.values()) < WEAK:
        print("No number of clusters stands out: train longer, or on more images, before you trust any.")
        return
    *coarser, k = standing_out(found)
    also = f" (so do coarser ones: {', '.join(map(str, coarser))})" if coarser else ""
    further = ""
    if config.clusters and k == config.n_clusters:
        further = " The run has that number already."
    elif config.clusters:
        further = f" To get them: {call('fit', '--from', given.run, '-k', k, '-o', 'OTHER')}"
    print(f"{k} clusters stand out{also}.{further}")
    if k == max(found):
        more = "see --up-to" if k == given.up_to else "on more images"
        print(f"That is the largest K that was tried: there may be more, {more}.")
