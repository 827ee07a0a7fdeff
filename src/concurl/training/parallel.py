"""A step on several ranks: torch's DistributedDataParallel averages their gradients."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from concurl.training.accumulate import AccumulatedStep
from concurl.training.step import Step


def distribute_step(step: Step) -> None:
    """Let torch average the gradients over the ranks while the backward pass is still running."""
    # find_unused_parameters: the cluster parts get no gradient before clustering begins, nor projector and predictor
    # while alpha is 0. It also keeps torch from rearranging its buckets after the first step, so that a resumed run
    # adds in the same order as one without interruption.
    averaged = DistributedDataParallel(_Losses(step), find_unused_parameters=True)
    averaged.broadcast_buffers = False  # batch norm's statistics are already equal on all ranks
    step.losses = averaged  # type: ignore[method-assign]
    if isinstance(step, AccumulatedStep):
        step.no_sync = averaged.no_sync


class _Losses(nn.Module):
    """A step's losses as a module, because torch follows only what passes through a module's forward."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.model, self._losses = step.model, step.losses
        # Not part of any loss: torch warns, on each rank, if no parameter was left unused.
        self.resting = nn.Parameter(step.model.prototypes.new_zeros(1))

    def forward(self, *arguments: object) -> Tensor:
        return self._losses(*arguments)  # type: ignore[arg-type]
