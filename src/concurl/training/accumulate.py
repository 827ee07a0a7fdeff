"""A step whose batch does not fit into memory: images go through the networks in parts, codes are those of the whole batch.

First all parts pass without gradients, for the embeddings that the codes need. Then, with the codes of the whole batch, each
part passes again with gradients, which add up, and one update of the weights and of the target follows. Where the codes come
from the target, the first pass is the one that every step makes through the target, and nothing is computed twice.

NOTE: batch norm sees a part instead of the batch (or, with batch_norm=apart, one view of a part), and its running statistics move
with each. Without batch norm the outcome is that of the whole batch, up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from concurl.network.model import Embeddings
from concurl.network.precision import precision
from concurl.training.schedule import Settings
from concurl.training.step import Known, Step, by_view, joined


class AccumulatedStep(Step):
    """A Step in `parts` equal parts."""

    def __init__(self, parts: int, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.parts = parts
        self.no_sync: Callable[[], AbstractContextManager[None]] = nullcontext
        """For all parts but the last: within it a backward pass does not send its gradients to other ranks (parallel.py)."""

    def backward(self, views: Sequence[Tensor], now: Settings[Tensor], clustering: bool) -> Tensor:
        parts = list(zip(*(view.chunk(self.parts) for view in views), strict=True))
        known = self.known(parts, clustering)
        total = torch.zeros(4, device=views[0].device)
        for number, (part, found) in enumerate(zip(parts, known, strict=True), start=1):
            with self.no_sync() if number < self.parts else nullcontext():
                losses = self.losses(part, now, clustering, found) / self.parts
                losses[0].backward()  # type: ignore[no-untyped-call]
            total += losses.detach()
        return total

    @torch.no_grad()
    def known(self, parts: list[tuple[Tensor, ...]], clustering: bool) -> list[Known]:
        """What the losses of each part need: its target embeddings, and its rows of the whole batch's codes."""
        online_codes = clustering and self.config.codes_from == "online"
        targets: list[Embeddings | None] = []
        z: list[Tensor] = []  # what the codes are made from: (V * b, dim) for each part
        for part in parts:
            x = joined(part)
            with precision(self.autocast, x.device):
                target = self.target(x)
                if online_codes:
                    with statistics_kept(self.model.online):
                        z.append(self.model.online(x).z.float())
                elif clustering:
                    assert target is not None
                    z.append(target.z.float())
            targets.append(target)
        if not clustering:
            return [Known(target, None) for target in targets]
        views = torch.cat([by_view(part, self.config.n_views) for part in z], dim=1)
        codes = self.codes(views).chunk(self.parts, dim=1)
        return [Known(target, q) for target, q in zip(targets, codes, strict=True)]

    def gathered(self, z: Tensor) -> Tensor:
        """Gathered part by part, because each part is divided among the ranks."""
        return torch.cat([self.world.gather(part) for part in z.chunk(self.parts)])


@contextmanager
def statistics_kept(network: nn.Module) -> Iterator[None]:
    """Batch norm normalises with its batch, as in training, but leaves its running statistics as they are."""
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True


def count_parts(batch_size: int, micro_batch: int | None, ranks: int) -> int:
    """The smallest number of equal parts, of at most `micro_batch` images each, that the ranks can divide among them.

    If `micro_batch` divides the batch, the number is the same for all numbers of ranks that divide `micro_batch`.
    """
    if micro_batch is None or micro_batch >= batch_size:
        return 1
    fewest = min(-(-batch_size // micro_batch), batch_size // ranks)  # a part holds at least one image for each rank
    return next(n for n in range(fewest, batch_size + 1) if batch_size % (n * ranks) == 0)
