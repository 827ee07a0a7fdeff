"""What changes over the steps: learning rate, tau_B, the weights of the losses, and which images the cluster losses hear."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from concurl.config import Config, filled

ALL_HEARD = 0.2  # share of the steps with clusters: until then prototypes are where they began, and votes mean little

Value = TypeVar("Value", float, Tensor)


class Settings(NamedTuple, Generic[Value]):
    """The values of one step: floats here, 0-dimensional tensors on the device in training."""

    learning_rate: Value
    tau_b: Value
    alpha: Value
    beta: Value
    gamma: Value
    min_sureness: Value


@dataclass(frozen=True)
class Schedule:
    """The settings of every step of a run of `total_steps`."""

    config: Config
    total_steps: int

    @property
    def cluster_step(self) -> int:
        """The first step with L2 and L3: 0 if there is no L1, `total_steps` if they have no weight.

        However short the run, its last step has them: otherwise head and prototypes would end as they were drawn.
        """
        if not self.config.clusters:
            return self.total_steps
        start = self.config.cluster_start if self.config.alpha > 0 else 0.0
        return min(round(start * self.total_steps), self.total_steps - 1)

    def at(self, step: int) -> Settings[float]:
        """The settings of a step, as floats."""
        c, risen = self.config, self._risen(step)
        factor, taken, steps = self._stage(step)
        return Settings(
            learning_rate=factor * self._learning_rate(taken / steps, steps),
            tau_b=self._tau_b(taken / steps),
            alpha=c.alpha,
            beta=c.beta * risen,
            gamma=c.gamma * risen,
            min_sureness=self._min_sureness(step),
        )

    def _stage(self, step: int) -> tuple[float, int, int]:
        """(factor on the learning rate, steps taken, steps in all) of the stage that the step is in.

        With a cluster_lr there are two stages, before and after clustering begins, each with a schedule of its own.
        """
        begin = self.cluster_step
        if self.config.cluster_lr is None or begin in (0, self.total_steps):
            return 1.0, step, self.total_steps
        if step < begin:
            return 1.0, step, begin
        return self.config.cluster_lr, step - begin, self.total_steps - begin

    def table(self, first: int, last: int) -> Tensor:
        """The settings of the steps first..last-1, one row each: float32 (n, 6)."""
        return torch.tensor([self.at(step) for step in range(first, last)], dtype=torch.float32)

    def _learning_rate(self, progress: float, steps: int) -> float:
        c, highest = self.config, filled(self.config.learning_rate)
        warmup = c.warmup if c.warmup * steps > 1 else 0.0  # a warm-up of one step would be a step at a rate of 0
        if progress < warmup:
            return highest * progress / warmup
        if c.schedule == "constant":
            return highest
        rest = (progress - warmup) / max(1e-12, 1 - warmup)
        return highest * 0.5 * (1 + math.cos(math.pi * rest))

    def _tau_b(self, progress: float) -> float:
        c = self.config
        if c.tau_b_end is None:
            return c.tau_b
        return c.tau_b_end - (c.tau_b_end - c.tau_b) * 0.5 * (1 + math.cos(math.pi * progress))

    def _risen(self, step: int) -> float:
        """The share of their weights that beta and gamma have reached."""
        since = step - self.cluster_step
        if since < 0:
            return 0.0
        ramp = self.config.cluster_ramp * self.total_steps
        return min(1.0, (since + 1) / ramp) if ramp >= 1 else 1.0

    def _min_sureness(self, step: int) -> float:
        heard_until = self.cluster_step + ALL_HEARD * (self.total_steps - self.cluster_step)
        return self.config.min_sureness if step >= heard_until else 0.0
