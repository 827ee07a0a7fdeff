"""All that changes while a run trains, as named tensors: what a checkpoint holds, and what a run goes on from."""

from __future__ import annotations

import json
from dataclasses import dataclass

import torch
from torch import Tensor

from concurl.config import Config
from concurl.errors import UserError
from concurl.network.model import Model
from concurl.objective.queue import EmbeddingQueue
from concurl.training.optimizer import load_tensors, tensors


@dataclass(frozen=True)
class TrainingState:
    """The trainer's own tensors, not copies of them."""

    model: Model
    optimizer: torch.optim.Optimizer
    A: Tensor
    queue: EmbeddingQueue
    totals: Tensor

    def named(self) -> dict[str, Tensor]:
        found = {"totals": self.totals, **self.clusters()}
        found |= {f"model.{name}": t for name, t in self.model.state_dict().items()}
        return found | {f"optimizer.{name}": t for name, t in tensors(self.optimizer).items()}

    def clusters(self) -> dict[str, Tensor]:
        """What rests, as it was drawn, until clustering begins."""
        queue = {f"queue.{name}": t for name, t in self.queue.state_dict().items()}
        return {"A": self.A, "model.prototypes": self.model.prototypes, **queue}

    def load(self, named: dict[str, Tensor]) -> None:
        self.model.load_state_dict(under("model", named))
        self.queue.load_state_dict(under("queue", named))
        load_tensors(self.optimizer, under("optimizer", named))
        self.A.copy_(named["A"])
        self.totals.copy_(named["totals"])


def same_run(config: Config, kept: str, *, until_clustering: bool) -> bool:
    """Is `kept`, a configuration as json, ours? If asked so, in all that acts before clustering begins.

    What an older version did not know yet has its default, which is what that version did.
    """
    try:
        other = Config.from_dict(json.loads(kept))
        return config.same_features(other) if until_clustering else other == config
    except (ValueError, TypeError, AttributeError, RecursionError, UserError):
        return False


def under(prefix: str, named: dict[str, Tensor]) -> dict[str, Tensor]:
    start = prefix + "."
    return {name[len(start) :]: tensor for name, tensor in named.items() if name.startswith(start)}
