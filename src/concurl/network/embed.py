"""The evaluation pass: images in, embeddings of both branches out, each image independent of the others.

Kernels, and with them the rounding, change with the shape of a batch. Therefore every forward pass has the same shape (the
last one is padded), and the numbers of an image do not depend on how many others come with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from concurl.data.storage.feed import read_ahead
from concurl.network.model import Embeddings, Model
from concurl.network.precision import precision
from concurl.views.views import evaluation_view

CHUNK_CPU, CHUNK_GPU = 32, 1024


@torch.no_grad()
def embed(
    model: Model,
    images: NDArray[np.uint8] | Tensor,  # (N, 3, H, W)
    *,
    image_size: int,
    sobel: bool = False,
    autocast: torch.dtype | None = None,
    branches: Collection[str] = ("online", "target"),
) -> Iterator[dict[str, Embeddings]]:
    """The embeddings of the branches in float32, chunk by chunk, in the order of the images."""
    device = model.prototypes.device
    chunk = CHUNK_GPU if device.type == "cuda" else CHUNK_CPU
    training = model.training
    model.eval()
    try:
        for x in _parts(images, chunk, device):
            n = len(x)
            x = evaluation_view(x, image_size, sobel)
            x = pad(x, (0, 0, 0, 0, 0, 0, 0, chunk - n)).contiguous(memory_format=torch.channels_last)
            with precision(autocast, device):
                outputs = {name: model(x) if name == "online" else model.target(x) for name in branches}
            yield {name: _rows(output, n) for name, output in outputs.items()}
    finally:
        model.train(training)


def _parts(images: NDArray[np.uint8] | Tensor, size: int, device: torch.device) -> Iterator[Tensor]:
    """Consecutive parts, on the device; the next one is read (and pinned, for a GPU) while this one is computed."""

    def read(start: int) -> Tensor:
        part = images[start : start + size]
        if isinstance(part, Tensor):
            return part
        held = torch.empty(part.shape, dtype=torch.uint8, pin_memory=device.type == "cuda")
        held.numpy()[:] = part
        return held

    for part in read_ahead(range(0, len(images), size), read, ahead=1):
        yield part.to(device, non_blocking=True)


def _rows(embeddings: Embeddings, n: int) -> Embeddings:
    y, v, z, w = embeddings
    return Embeddings(y[:n].float(), v[:n].float(), z[:n].float(), None if w is None else w[:n].float())
