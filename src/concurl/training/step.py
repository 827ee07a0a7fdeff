"""One step of training: two views, both branches, three losses, one update, one move of the target."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from concurl.config import Config
from concurl.network.model import Embeddings, Model
from concurl.objective.ensemble import ensemble_log_assignments, log_assignments
from concurl.objective.losses import byol_loss, swapped_loss
from concurl.objective.queue import EmbeddingQueue
from concurl.objective.sinkhorn import sinkhorn
from concurl.training.distributed import World
from concurl.training.optimizer import set_learning_rate
from concurl.training.schedule import Settings

Views = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(images uint8 (B, 3, H, W), ids (B,), step ()) -> x1, x2 float (B, C, S, S)"""


class Known(NamedTuple):
    """What was found out about images before their losses are asked for (see accumulate.py)."""

    target: Embeddings | None  # None where no loss looks at the target
    codes: tuple[Tensor, Tensor] | None  # q1, q2; None while clustering does not act


class Step:
    """Everything a step needs; calling it takes the step.

    Nothing in it waits for the device: what changes from step to step (`number`, `settings`) comes in as tensors,
    so that the whole step can be captured in one CUDA graph.
    """

    def __init__(
        self,
        config: Config,
        model: Model,
        optimizer: torch.optim.Optimizer,
        A: Tensor,
        queue: EmbeddingQueue,
        views: Views,
        autocast: torch.dtype | None,
        world: World | None = None,  # None: this process alone
    ) -> None:
        self.config, self.model, self.optimizer = config, model, optimizer
        self.A, self.queue, self.views, self.autocast = A, queue, views, autocast
        self.world = world or World()

    def __call__(self, images: Tensor, ids: Tensor, number: Tensor, settings: Tensor, clustering: bool) -> Tensor:
        """Take one step; returns (loss, l1, l2, l3) as one tensor. `settings` is a row of Schedule.table.

        On several ranks each brings its share of the batch; weights, codes and losses are those of the whole.
        """
        now = Settings(*settings)
        x1, x2 = self.views(images, ids, number)
        losses = self.descend(x1, x2, now, clustering)
        set_learning_rate(self.optimizer, now.learning_rate)  # type: ignore[arg-type]
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.model.update_target(now.tau_b)  # type: ignore[arg-type]
        return self.world.mean(losses)

    def descend(self, x1: Tensor, x2: Tensor, now: Settings, clustering: bool) -> Tensor:
        """The losses; their gradients are then in the parameters."""
        losses = self.losses(x1, x2, now, clustering)
        losses[0].backward()  # type: ignore[no-untyped-call]
        return losses.detach()

    def losses(self, x1: Tensor, x2: Tensor, now: Settings, clustering: bool, known: Known | None = None) -> Tensor:
        """(L_total, L1, L2, L3); L2 and L3 are 0 while they do not act."""
        x = both_views(x1, x2)
        with self.arithmetic(x.device):
            # NOTE: both views go through in one pass, so batch norm sees the statistics of both together.
            online: Embeddings = self.model(x)
            if known is None:
                known = Known(self.target(x), None)
        return self.objective(online, known.target or online, now, clustering, known.codes)

    def objective(
        self,
        online: Embeddings,
        target: Embeddings,
        now: Settings,
        clustering: bool,
        codes: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """The losses from what the two branches made of both views, the first view's rows before the second's."""
        c = self.config
        l1 = l2 = l3 = torch.zeros((), device=online.z.device)
        if c.alpha > 0:
            assert online.w is not None
            l1 = byol_loss(*online.w.chunk(2), *target.v.chunk(2))  # eq. 2
        if clustering:
            C = self.model.prototypes
            z1, z2 = online.z.float().chunk(2)
            coded = online if c.codes_from == "online" else target
            q1, q2 = codes or self.codes(*coded.z.float().chunk(2))  # eq. 4
            if c.beta > 0:
                log_p1, log_p2 = log_assignments(z1, C, c.tau), log_assignments(z2, C, c.tau)  # eq. 3
                l2 = swapped_loss(log_p1, log_p2, q1, q2)  # eq. 5
            if c.gamma > 0:
                log_pm1 = ensemble_log_assignments(z1, C, self.A, c.tau)  # (M, B, K)
                log_pm2 = ensemble_log_assignments(z2, C, self.A, c.tau)
                l3 = swapped_loss(log_pm1, log_pm2, q1, q2)  # eq. 6, mean over M
        loss = now.alpha * l1 + now.beta * l2 + now.gamma * l3  # eq. 7
        return torch.stack([loss, l1, l2, l3])

    @torch.no_grad()
    def target(self, x: Tensor) -> Embeddings | None:
        """The target's embeddings of both views, if any loss looks at them."""
        used = self.config.alpha > 0 or self.config.codes_from == "target"
        return self.model.target(x) if used else None

    def arithmetic(self, device: torch.device) -> torch.autocast:
        return torch.autocast(device.type, self.autocast or torch.bfloat16, enabled=self.autocast is not None)

    @torch.no_grad()
    def codes(self, z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor]:
        """q of both views (B, K), each view balanced on its own over all ranks, with its queue if there is one.

        NOTE: eq. 4 writes C and Z without bars; as in SwAV, and as in eq. 3, both are normalised here.
        """
        c, B = self.config, len(z1)
        C = normalize(self.model.prototypes, dim=1)
        z1, z2 = normalize(z1, dim=1), normalize(z2, dim=1)
        q1, q2 = (
            sinkhorn(
                self.queue.extended(z, view, self.world.part) @ C.t(),
                c.epsilon,
                c.sinkhorn_iterations,
                log_reduce=self.world.log_reduce,
            )[0][:B]
            for view, z in enumerate((z1, z2))
        )
        if self.queue.size:
            self.queue.push(self.whole(z1), self.whole(z2))
        return q1, q2

    def whole(self, z: Tensor) -> Tensor:
        """The rows of all ranks, in the batch's order: so the queue is the same on any number of them."""
        return self.world.gather(z)


def both_views(x1: Tensor, x2: Tensor) -> Tensor:
    return torch.cat([x1, x2]).contiguous(memory_format=torch.channels_last)  # faster on GPUs and CPUs alike
