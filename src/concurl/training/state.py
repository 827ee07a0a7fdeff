"""All that changes in training, as named tensors: what a checkpoint holds, and what a run is resumed from."""

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
    """References to the trainer's own tensors, not copies."""

    model: Model
    optimizer: torch.optim.Optimizer
    A: Tensor
    queue: EmbeddingQueue
    totals: Tensor

    def named(self) -> dict[str, Tensor]:
        """All of them by name."""
        found = {"totals": self.totals, **self.clusters()}
        found |= {f"model.{name}": t for name, t in self.model.state_dict().items()}
        return found | {f"optimizer.{name}": t for name, t in tensors(self.optimizer).items()}

    def clusters(self) -> dict[str, Tensor]:
        """Those that stay as they were drawn until clustering begins."""
        queue = {f"queue.{name}": t for name, t in self.queue.state_dict().items()}
        return {"A": self.A, "model.prototypes": self.model.prototypes, **queue}

    def load(self, named: dict[str, Tensor]) -> None:
        self.model.load_state_dict(under("model", named))
        self.queue.load_state_dict(under("queue", named))
        load_tensors(self.optimizer, under("optimizer", named))
        self.A.copy_(named["A"])
        self.totals.copy_(named["totals"])


def same_run(config: Config, kept: str, *, until_clustering: bool) -> bool:
    """Is `kept` (json) the same configuration, or with `until_clustering` the same in all that acts before clustering?

    Options that an older version did not have take their defaults, which is how that version behaved.
    """
    try:
        other = Config.from_dict(json.loads(kept))
        return config.same_features(other) if until_clustering else other == config
    except (ValueError, TypeError, AttributeError, RecursionError, UserError):
        return False


def under(prefix: str, named: dict[str, Tensor]) -> dict[str, Tensor]:
    """Those whose names begin with `prefix` and a dot, without it."""
    start = prefix + "."
    return {name[len(start) :]: tensor for name, tensor in named.items() if name.startswith(start)}
