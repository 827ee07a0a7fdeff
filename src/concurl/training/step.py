"""One step of training: views of the images, both branches, three losses, one update of the weights and of the target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from concurl.config import Config
from concurl.network.model import Embeddings, Model
from concurl.network.precision import precision
from concurl.objective.ensemble import ensemble_log_assignments, log_assignments, soft_vote
from concurl.objective.losses import byol_loss, swapped_loss
from concurl.objective.queue import EmbeddingQueue
from concurl.objective.sinkhorn import sinkhorn
from concurl.training.distributed import World
from concurl.training.optimizer import set_learning_rate
from concurl.training.schedule import Settings
from concurl.training.sidestream import SideStream
from concurl.views.views import MakeViews, check_views


class Known(NamedTuple):
    """What is known of a part of the batch before its losses are computed (see accumulate.py)."""

    target: Embeddings | None  # None if no loss needs the target
    codes: Tensor | None  # q (V, B, K); None before clustering begins, or if they are still to be computed


class Step:
    """Holds everything that a step needs; a call takes the step.

    The host never waits for the device, and what changes from step to step (`number`, `settings`) comes in as tensors.
    So the whole step can be captured in one CUDA graph.
    """

    def __init__(
        self,
        config: Config,
        model: Model,
        optimizer: torch.optim.Optimizer,
        A: Tensor,
        queue: EmbeddingQueue,
        views: MakeViews,
        autocast: torch.dtype | None,
        world: World | None = None,  # None: this process alone
    ) -> None:
        self.config, self.model, self.optimizer = config, model, optimizer
        self.A, self.queue, self.views, self.autocast = A, queue, views, autocast
        self.world = world or World()
        self.side: SideStream | None = None  # where the target's pass runs beside the online one: see graph.py

    def __call__(self, images: Tensor, ids: Tensor, number: Tensor, settings: Tensor, clustering: bool) -> Tensor:
        """Take step `number` with `settings`, a row of Schedule.table; returns (loss, l1, l2, l3) as one tensor.

        On several ranks each brings its share of the batch; codes, losses and update are those of the whole batch.
        """
        now = Settings(*settings)
        views = self.views(images, ids, number)
        check_views(views, self.config.n_views, len(images), self.config.channels)
        losses = self.backward(views, now, clustering)
        set_learning_rate(self.optimizer, now.learning_rate)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.model.update_target(now.tau_b)
        return self.world.mean(losses)

    def backward(self, views: Sequence[Tensor], now: Settings[Tensor], clustering: bool) -> Tensor:
        """Compute the losses (4,) and leave their gradients in the parameters."""
        losses = self.losses(views, now, clustering)
        losses[0].backward()  # type: ignore[no-untyped-call]
        return losses.detach()

    def losses(
        self, views: Sequence[Tensor], now: Settings[Tensor], clustering: bool, known: Known | None = None
    ) -> Tensor:
        """(L_total, L1, L2, L3) as one tensor; L2 and L3 are 0 before clustering begins."""
        x = joined(views)
        with precision(self.autocast, x.device):
            if known is None:
                online, target = self.both_branches(x)
                known = Known(target, None)
            else:
                online = self.model(x)
        return self.objective(online, known.target, now, clustering, known.codes)

    def both_branches(self, x: Tensor) -> tuple[Embeddings, Embeddings | None]:
        """The embeddings of all views by the online branch and by the target (see `target`)."""
        with self.side.beside() if self.side else nullcontext():
            target = self.target(x)
        online: Embeddings = self.model(x)
        if self.side:
            self.side.join()
        return online, target

    def objective(
        self,
        online: Embeddings,
        target: Embeddings | None,  # None where no loss needs it: see `target`
        now: Settings[Tensor],
        clustering: bool,
        q: Tensor | None = None,  # (V, B, K): the codes, where they are known
    ) -> Tensor:
        """The losses from the embeddings of all views (V * B rows, the first view's before the second's).

        NOTE: the paper has two views. With more, each loss is the mean over all pairs of views.
        """
        c = self.config
        l1 = l2 = l3 = torch.zeros((), device=online.z.device)
        if c.alpha > 0:
            assert online.w is not None and target is not None
            w, v = online.w.chunk(c.n_views), target.v.chunk(c.n_views)
            l1 = self.over_pairs(lambda a, b: byol_loss(w[a], w[b], v[a], v[b]))  # eq. 2
        if clustering:
            C, z = self.model.prototypes, online.z.float()
            source = online if c.codes_from == "online" else target
            assert source is not None
            if q is None:
                q = self.codes(by_view(source.z.float(), c.n_views))  # eq. 4
            if c.min_sureness > 0:
                z = torch.where(self.heard(source.z, q, now.min_sureness), z, z.detach())
            codes = q.unbind()
            if c.beta > 0:
                log_p = log_assignments(z, C, c.tau).chunk(c.n_views)  # eq. 3
                l2 = self.over_pairs(lambda a, b: swapped_loss(log_p[a], log_p[b], codes[a], codes[b]))  # eq. 5
            if c.gamma > 0:
                # There are M tables of products: half precision halves the memory traffic. L2's one table stays float32.
                with precision(self.autocast, z.device):
                    log_pm = ensemble_log_assignments(z, C, self.A, c.tau).chunk(c.n_views, dim=1)  # (M, B, K) each
                l3 = self.over_pairs(lambda a, b: swapped_loss(log_pm[a], log_pm[b], codes[a], codes[b]))  # eq. 6
        loss = now.alpha * l1 + now.beta * l2 + now.gamma * l3  # eq. 7
        return torch.stack([loss, l1, l2, l3])

    def over_pairs(self, loss: Callable[[int, int], Tensor]) -> Tensor:
        """The mean of a loss over all pairs of views."""
        pairs = [loss(a, b) for a, b in combinations(range(self.config.n_views), 2)]
        return sum(pairs[1:], pairs[0]) / len(pairs)

    @torch.no_grad()
    def target(self, x: Tensor) -> Embeddings | None:
        """The target's embeddings of all views, or None if no loss needs them."""
        used = self.config.alpha > 0 or self.config.codes_from == "target"
        return self.model.target(x) if used else None

    @torch.no_grad()
    def codes(self, z: Tensor) -> Tensor:
        """q (V, B, K) from z (V, B, dim): each view is balanced on its own, over all ranks, together with its queue.

        NOTE: eq. 4 has C and Z without the bars of unit vectors. Here both are normalised, as in SwAV and in eq. 3.
        """
        c, B = self.config, z.shape[1]
        unit, C = normalize(z, dim=-1), normalize(self.model.prototypes, dim=1)
        queued = self.queue.entries[:, self.world.part]
        # Joined as scores, because K is mostly smaller than dim. Images come last in memory: see sinkhorn.
        scores = torch.cat([C @ unit.mT, C @ queued.mT], dim=-1).mT  # (V, B + queued, K)
        q, _ = sinkhorn(scores, c.epsilon, c.sinkhorn_iterations, balance=c.balance, log_reduce=self.world.log_reduce)
        if self.queue.size:
            self.queue.push(torch.stack([self.gathered(view) for view in unit]))
        return q[:, :B]

    @torch.no_grad()
    def heard(self, z: Tensor, q: Tensor, min_sureness: Tensor) -> Tensor:
        """(V * B, 1): is the ensemble sure enough of an image's cluster, in the mean over its views?

        NOTE: not in the paper. Balance gives every image a cluster, also those that fit none. Such images keep their part in
        the losses and move the prototypes, but not the networks.
        """
        with precision(self.autocast, z.device):
            vote = by_view(soft_vote(z, self.model.prototypes, self.A, self.config.tau), len(q))
        cluster = q.argmax(-1, keepdim=True)
        p, other = vote.gather(-1, cluster), vote.scatter(-1, cluster, 0).amax(-1, keepdim=True)
        return ((p / (p + other)).mean(0) >= min_sureness).repeat(len(q), 1)

    def gathered(self, z: Tensor) -> Tensor:
        """The rows of all ranks in the order of the batch, so that the queue does not depend on the number of ranks."""
        return self.world.gather(z)


def by_view(rows: Tensor, n_views: int) -> Tensor:
    """(V * B, ...), with the first view's rows before the second's, as (V, B, ...)."""
    return rows.view(n_views, -1, *rows.shape[1:])


def joined(views: Sequence[Tensor]) -> Tensor:
    """The views, V of (B, channels, S, S), one after the other as (V * B, channels, S, S)."""
    return torch.cat(list(views)).contiguous(memory_format=torch.channels_last)  # faster on GPUs and CPUs alike
