"""Batch norm over the batch of all ranks: torch's SyncBatchNorm with NCCL, elsewhere a small one of our own.

torch's does not run on CPUs. Ours needs only all_reduce, which gloo (for CPUs, or processes that share a GPU) offers for
tensors on any device.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from concurl.training.distributed import World


def synchronise(model: nn.Module, world: World) -> None:
    """Replace every batch norm in `model`; its weights, its statistics and their names stay the same."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, _BatchNorm):
                nccl = child.weight.is_cuda and "nccl" in dist.get_backend()
                new = _like(child, nn.SyncBatchNorm if nccl else AllReduceBatchNorm)
                if isinstance(new, AllReduceBatchNorm):
                    new.world = world
                setattr(parent, name, new)


class AllReduceBatchNorm(_BatchNorm):
    """Computes what one process would on the whole batch, up to rounding. All ranks must have equally many rows."""

    world = World()

    def _check_input_dim(self, input: Tensor) -> None:
        pass

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        others = [d for d in range(x.dim()) if d != 1]
        shape = [-1 if d == 1 else 1 for d in range(x.dim())]
        count = self.world.size * x.numel() // x.shape[1]
        mean = _sum(wide.sum(others), self.world) / count
        # From the deviations, because the mean of squares loses digits where the mean is large.
        centred = wide - mean.view(shape)
        variance = _sum(centred.square().sum(others), self.world) / count
        if self.track_running_stats:
            self._follow(mean.detach(), variance.detach() * count / (count - 1))
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return (centred * scale.view(shape) + self.bias.view(shape)).to(x.dtype)

    @torch.no_grad()
    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        """Update the running statistics as torch does, with the unbiased variance."""
        assert self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None
        assert self.momentum is not None, "a cumulative average is not supported"
        self.num_batches_tracked.add_(1)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        self.running_var.lerp_(variance.to(self.running_var.dtype), self.momentum)


class _Sum(torch.autograd.Function):
    """A sum over the ranks. Every rank's loss depends on it, so its gradient is the sum over the ranks as well."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, world: World) -> Tensor:
        ctx.world = world
        return world.sum(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.world.sum(gradients[0]), None


def _sum(x: Tensor, world: World) -> Tensor:
    return _Sum.apply(x, world)  # type: ignore[no-any-return,no-untyped-call]


def _like(old: _BatchNorm, kind: type[_BatchNorm]) -> _BatchNorm:
    new = kind(old.num_features, old.eps, old.momentum, old.affine, old.track_running_stats)
    new.weight, new.bias = old.weight, old.bias
    new.running_mean, new.running_var = old.running_mean, old.running_var
    new.num_batches_tracked = old.num_batches_tracked
    return new.train(old.training)
