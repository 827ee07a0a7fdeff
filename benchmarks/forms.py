"""The step in three forms: the method's own, the networks alone (its limit), and as such code is commonly written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from concurl.config import Config
from concurl.network.model import Embeddings
from concurl.objective.ensemble import log_assignments
from concurl.objective.losses import byol_loss, swapped_loss
from concurl.training.compiled import CompiledStep
from concurl.training.graph import CapturedStep
from concurl.training.sidestream import SideStream
from concurl.training.step import Step
from concurl.training.trainer import Trainer
from concurl.views.presets import view_spec
from concurl.views.views import Views


class Ceiling(Step):
    """The networks alone: the limit that views, codes and cluster losses are measured against."""

    def objective(
        self, online: Embeddings, target: Embeddings | None, now: Any, clustering: bool, q: Any = None
    ) -> Tensor:
        assert online.w is not None
        assert target is not None
        loss = byol_loss(*online.w.chunk(2), *target.v.chunk(2)) + online.z.float().square().mean()
        return torch.stack([loss, loss, loss, loss])


class Peer(Step):
    """The same step with a Python loop over the transformations."""

    def losses(self, views: Sequence[Tensor], now: Any, clustering: bool, known: Any = None) -> Tensor:
        c, (x1, x2) = self.config, views
        (_, _, z1, w1), (_, _, z2, w2) = self.model(x1), self.model(x2)
        with torch.no_grad():
            v1, v2 = self.model.target(x1).v, self.model.target(x2).v
        C = self.model.prototypes
        q1, q2 = self.codes(torch.stack([z1, z2]))
        l1 = byol_loss(w1, w2, v1, v2)
        l2 = swapped_loss(log_assignments(z1, C, c.tau), log_assignments(z2, C, c.tau), q1, q2)
        l3 = torch.zeros((), device=z1.device)
        for A in self.A:
            l3 = l3 + swapped_loss(
                log_assignments(z1 @ A.t(), C @ A.t(), c.tau), log_assignments(z2 @ A.t(), C @ A.t(), c.tau), q1, q2
            )
        l3 = l3 / len(self.A)
        return torch.stack([l1 + l2 + l3, l1, l2, l3])


def synthetic(config: Config, n: int = 8192) -> np.ndarray:
    assert config.image_size is not None
    size = config.image_size
    n = max(2 * (config.batch_size or 0), n * 32 * 32 // (size * size))
    return np.random.default_rng(0).integers(0, 256, (n, 3, size, size), dtype=np.uint8)


def build(config: Config, form: str) -> Callable[[], Tensor]:
    """A function that takes one step of the whole method ("step", or "before clustering"), or of one of the two comparisons."""
    images = synthetic(config)
    trainer = Trainer(config.replace(monitor_images=2), images)
    device, B = trainer.arithmetic.device, config.batch_size
    assert B is not None
    trainer.model.train()
    step: Any = trainer.take_step
    if form in ("ceiling", "peer"):
        plain = step
        while isinstance(plain, CapturedStep | CompiledStep):
            plain = plain.step
        kind = Ceiling if form == "ceiling" else Peer
        views: Any = Views(config)
        if form == "ceiling":
            size = view_spec(config).size
            still = torch.randn(2, B, 3, size, size, device=device)
            views = lambda images, ids, number: (still[0], still[1])  # noqa: E731
        step = kind(config, plain.model, plain.optimizer, plain.A, plain.queue, views, plain.autocast)
        if form == "ceiling" and device.type == "cuda" and config.compile == "on":
            step.side = SideStream(step.A.device)
            step = CapturedStep(CompiledStep(step), SideStream(step.A.device))
    resident = torch.from_numpy(images).to(device)
    order = torch.randperm(len(images), device=device)
    settings = trainer.schedule.table(0, 1).to(device)[0]
    number = torch.zeros((), dtype=torch.int64, device=device)
    state = {"i": 0}

    def take() -> Tensor:
        i = state["i"] = (state["i"] + 1) % (len(images) // B)
        ids = order[i * B : (i + 1) * B]
        result: Tensor = step(resident[ids], ids, number, settings, form != "before clustering")
        return result

    return take
