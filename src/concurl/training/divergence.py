"""NaN and infinity: in which step they came up, and which images were in its batch."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from concurl.config import Config, filled
from concurl.data.batches import epoch_order
from concurl.errors import RunError

_NEVER = 2**62


class Diverged(RunError):
    """The loss or a weight is no longer finite."""

    def __init__(self, step: int, where: str) -> None:
        super().__init__(
            f"{where} not finite at step {step}: the last good checkpoint is kept. As a resumed run would come to the "
            "same step, start anew with half the --learning-rate or, if it was bfloat16, with --precision float32"
        )
        self.step = step


class FiniteWatch:
    """Remembers, on the device, the first step whose loss was not finite: to ask in every step would make the host wait."""

    def __init__(self, device: torch.device) -> None:
        self._first = torch.full((), _NEVER, dtype=torch.int64, device=device)

    def note(self, loss: Tensor, step: Tensor) -> None:
        bad = torch.where(torch.isfinite(loss), _NEVER, step)
        torch.minimum(self._first, bad, out=self._first)

    def check(self, step: int, weights: Iterable[Tensor] = ()) -> None:
        """Raise Diverged if a loss up to now, or one of these weights after `step` steps, is not finite."""
        first = int(self._first)
        if first < _NEVER:
            raise Diverged(first, "the loss is")
        sound = [torch.isfinite(weight).all() for weight in weights]
        if sound and not bool(torch.stack(sound).all()):
            raise Diverged(step - 1, "the update of the weights is")


def batch_of(config: Config, step: int, n_images: int) -> NDArray[np.int64]:
    """The ids of the images in the batch of this step."""
    size = filled(config.batch_size)
    epoch, position = divmod(step, n_images // size)
    order: NDArray[np.int64] = epoch_order(config.seed, epoch, n_images).numpy()
    return order[position * size : (position + 1) * size]
