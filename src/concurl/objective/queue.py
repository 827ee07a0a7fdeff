"""Past embeddings that join a batch when its codes are balanced.

A random batch holds more of some clusters than of others. Balancing it therefore mislabels images even if the features are
perfect (7% at 256 images and 10 clusters). Among some 4,000 images that hardly matters.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class EmbeddingQueue(nn.Module):
    """A ring buffer of the last `size` unit embeddings of each view; a `size` of 0 means no queue."""

    entries: Tensor  # (V, size, dim)
    position: Tensor  # (): of the oldest

    def __init__(self, size: int, dim: int, n_views: int = 2) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("entries", torch.zeros(n_views, size, dim))
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def fill(self, z: Tensor) -> None:
        """Fill the ring with embeddings z (n, dim), repeated as often as needed: an empty one would distort the codes."""
        self.entries.copy_(z[torch.arange(self.size, device=z.device) % len(z)])

    @torch.no_grad()
    def push(self, z: Tensor) -> None:
        """Replace the oldest entries with z (V, B, dim); on the device alone, so that a CUDA graph can capture the step."""
        n = min(z.shape[1], self.size)
        rows = (self.position + torch.arange(n, device=z.device)) % self.size
        self.entries.index_copy_(1, rows, z[:, -n:].to(self.entries.dtype))
        self.position.add_(n).remainder_(self.size)
