"""Out of memory: the error says in one line which part of the batch would probably fit."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from concurl.config import Config, filled
from concurl.errors import RunError, causes, tells_of_memory
from concurl.hostmemory import free_host_memory
from concurl.network.model import Model

# A factor on what the backward pass keeps, for gradients, the target's pass, the views and what the allocator wastes.
_OVERHEAD = 2.5


@contextmanager
def memory_errors_told(config: Config, device: torch.device) -> Iterator[None]:
    """A failed allocation within the block becomes a RunError (exit code 1)."""
    try:
        yield
        return
    except (MemoryError, RuntimeError) as error:
        if not tells_of_memory(error):
            raise
        _let_go(error)
    remedy = _remedy(config, device)
    tried = f"batch_size={config.batch_size}"
    if config.micro_batch is not None:
        tried += f" and micro_batch={config.micro_batch}"
    raise RunError(f"out of memory on {device} with {tried}: {remedy}; nothing saved is lost")


def _remedy(config: Config, device: torch.device) -> str:
    queue = 4 * config.n_views * config.queue_size * config.embedding_dim  # in bytes
    if queue > _failed_part(config) * _bytes_per_image(config):
        return f"queue_size={config.queue_size:,} takes more than the networks do: take a smaller --queue-size"
    size = fitting_part(config, device)
    if size < 2:
        return "not even the smallest part would fit: take a smaller --encoder or --image-size"
    return f"--micro-batch {size} would probably fit, and leaves the batch and its codes as they are"


def fitting_part(config: Config, device: torch.device) -> int:
    """The largest power of two that should fit into the free memory; at most half of the part (or batch) that failed."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info(device)[0]
    else:
        free = free_host_memory()
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    wanted = ranks * free / max(1.0, _OVERHEAD * _bytes_per_image(config))
    size = 1
    while size * 2 <= min(wanted, _failed_part(config) // 2):
        size *= 2
    return size


def _failed_part(config: Config) -> int:
    batch = filled(config.batch_size)
    return min(batch, config.micro_batch or batch)


def _let_go(error: BaseException) -> None:
    """Free the tensors that the frames of the exception still hold."""
    for link in causes(error):
        traceback.clear_frames(link.__traceback__)


def _bytes_per_image(config: Config) -> float:
    """What the backward pass keeps of an image's views, counted from shapes alone, which takes no memory."""
    kept: dict[int, Tensor] = {}

    def count(tensor: Tensor) -> Tensor:
        kept[id(tensor)] = tensor  # the reference keeps the id from being given twice
        return tensor

    images = 2
    with torch.device("meta"):
        # Views apart keep as much, but the weights would be counted again with each pass.
        model = Model(config.replace(batch_norm="joint"))
        x = torch.zeros(config.n_views * images, config.channels, config.view_size, config.view_size)
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            model(x)
    weights = {id(weight) for weight in model.parameters()}
    return sum(t.numel() * t.element_size() for key, t in kept.items() if key not in weights) / images
