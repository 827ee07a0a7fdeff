"""A step whose batch does not fit: its images go through the networks in parts, its codes are those of the whole.

First every part without gradients, for the embeddings that the codes need; then, with the codes of the whole batch, each
part again with gradients, which add up. One update and one move of the target follow, as ever. Where the codes come from
the target, its pass is the one that a step makes anyway, and nothing is computed twice.

NOTE: batch norm sees a part and not the batch, and its running statistics move once a part. Without batch norm the
outcome is that of the whole batch, up to rounding.
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
        self.not_yet: Callable[[], AbstractContextManager[None]] = nullcontext
        """Within it a backward pass leaves the gradients with its rank: more are to come (see parallel.py)."""

    def descend(self, views: Sequence[Tensor], now: Settings, clustering: bool) -> Tensor:
        parts = list(zip(*(view.chunk(self.parts) for view in views), strict=True))
        known = self.known(parts, clustering)
        total = torch.zeros(4, device=views[0].device)
        for number, (part, found) in enumerate(zip(parts, known, strict=True), start=1):
            with self.not_yet() if number < self.parts else nullcontext():
                losses = self.losses(part, now, clustering, found) / self.parts
                losses[0].backward()  # type: ignore[no-untyped-call]
            total += losses.detach()
        return total

    @torch.no_grad()
    def known(self, parts: list[tuple[Tensor, ...]], clustering: bool) -> list[Known]:
        """What each part's losses need: its target, and its share of the whole batch's codes."""
        online_codes = clustering and self.config.codes_from == "online"
        targets: list[Embeddings | None] = []
        z: list[Tensor] = []  # of all views, which the codes are made from
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

    def whole(self, z: Tensor) -> Tensor:
        """Each part is shared out over the ranks, and so gathered part by part."""
        return torch.cat([self.world.gather(part) for part in z.chunk(self.parts)])


@contextmanager
def statistics_kept(network: nn.Module) -> Iterator[None]:
    """Batch norm normalises with its batch, as in training, but its running statistics do not notice."""
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True


def count_parts(batch_size: int, micro_batch: int | None, ranks: int) -> int:
    """The fewest equal parts of at most `micro_batch` images that the ranks can share.

    It is the same for any number of ranks that divides `micro_batch`, where that divides the batch.
    """
    if micro_batch is None or micro_batch >= batch_size:
        return 1
    fewest = min(-(-batch_size // micro_batch), batch_size // ranks)  # a part holds at least one image for each rank
    return next(n for n in range(fewest, batch_size + 1) if batch_size % (n * ranks) == 0)
