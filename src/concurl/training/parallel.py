"""A step that is one of several, on several processes: torch's DistributedDataParallel joins their gradients."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from concurl.training.accumulate import AccumulatedStep
from concurl.training.step import Step


def distribute_step(step: Step) -> None:
    """Let torch average the gradients over the ranks while the backward pass is still running."""
    # find_unused_parameters: the cluster parts rest until clustering begins, projector and predictor while alpha
    # is 0. It also keeps torch from rearranging its buckets after the first step, so that a resumed run adds in
    # the order of an undisturbed one.
    joined = DistributedDataParallel(_Losses(step), find_unused_parameters=True)
    joined.broadcast_buffers = False  # batch norm's statistics are equal on all ranks as it is
    step.losses = joined  # type: ignore[method-assign]
    if isinstance(step, AccumulatedStep):
        step.not_yet = joined.no_sync


class _Losses(nn.Module):
    """A step's losses as a module: all that lies between parameters and loss must pass through its forward."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.model, self._losses = step.model, step.losses
        # Part of no loss: torch warns, on each rank, as soon as it finds no parameter that was left unused.
        self.resting = nn.Parameter(step.model.prototypes.new_zeros(1))

    def forward(self, *arguments: object) -> Tensor:
        return self._losses(*arguments)  # type: ignore[arg-type]
