"""Which images in which step: a function of (seed, epoch), never of workers, ranks or the clock."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def epoch_order(seed: int, epoch: int, n_images: int) -> Tensor:
    """The order of one epoch: int64 (n_images,). Epochs are independent draws, so any epoch can be re-entered."""
    generator = np.random.Generator(np.random.Philox(key=[seed, epoch]))
    return torch.from_numpy(generator.permutation(n_images))


def sample(seed: int, n_images: int, size: int) -> Tensor:
    """The ids of at most `size` of the images, drawn by the seed, in ascending order."""
    generator = np.random.Generator(np.random.Philox(key=[seed, 2**63]))  # a key that no epoch has
    chosen = generator.permutation(n_images)[:size]
    return torch.from_numpy(np.sort(chosen))
