"""From the packed images to a batch on the device: resident where the set fits, else read ahead from disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from concurl.hostmemory import free_host_memory

Item = TypeVar("Item")
_SHARE = 0.4  # of the device's free memory, for the whole set; the rest is for the step
_AHEAD = 4  # batches that are read before they are asked for


class Resident:
    """The whole set as one uint8 tensor on the device."""

    def __init__(self, images: NDArray[np.uint8], device: torch.device) -> None:
        if device.type == "cpu":  # copied only if torch cannot take the array as it is
            self.images = torch.from_numpy(np.require(images, requirements=["C", "W"]))
        else:
            self.images = torch.empty(images.shape, dtype=torch.uint8, device=device)
            for start in range(0, len(images), 4096):  # in parts: a memory map need not fit into the host's memory
                self.images[start : start + 4096] = torch.from_numpy(np.array(images[start : start + 4096]))
        self.description = f"all {len(images):,} images ({images.nbytes / 2**20:,.0f} MiB) on {device}"

    def batches(self, ids: Tensor, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """(images uint8 (B, 3, H, W), ids (B,)) on the device, for consecutive full batches of `ids`."""
        ids = ids.to(self.images.device)
        for batch in torch.split(ids, batch_size):
            if len(batch) == batch_size:
                yield self.images[batch], batch


class Streaming:
    """Batches read from a memory map by a thread, a few steps ahead, through pinned memory."""

    def __init__(self, images: NDArray[np.uint8], device: torch.device) -> None:
        self.images, self.device = images, device
        self.description = f"{len(images):,} images ({images.nbytes / 2**30:,.1f} GiB) read ahead from disk"

    def batches(self, ids: Tensor, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """As Resident's."""
        full = [batch for batch in torch.split(ids, batch_size) if len(batch) == batch_size]
        for batch, images in zip(full, read_ahead(full, self._read, _AHEAD), strict=True):
            yield images.to(self.device, non_blocking=True), batch.to(self.device, non_blocking=True)

    def _read(self, batch: Tensor) -> Tensor:
        # Ascending reads are kind to the disk; the batch keeps its own order.
        ascending, back = torch.sort(batch)
        images = torch.from_numpy(np.asarray(self.images[ascending.numpy()]))[torch.argsort(back)]
        return images.pin_memory() if self.device.type == "cuda" else images


Feed = Resident | Streaming  # gives the images of one epoch's batches, in order


def read_ahead(items: Iterable[Item], read: Callable[[Item], Tensor], ahead: int) -> Iterator[Tensor]:
    """read(item) for every item, in order, by a thread that is up to `ahead` items further on."""
    with ThreadPoolExecutor(1, thread_name_prefix="concurl-reader") as reader:
        waiting: deque[Future[Tensor]] = deque()
        try:
            for item in items:
                waiting.append(reader.submit(read, item))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            reader.shutdown(wait=False, cancel_futures=True)


def make_feed(images: NDArray[np.uint8], device: torch.device) -> Feed:
    """Resident if the set is there already, or takes no more than its share of the free memory: the rest is for the step."""
    if device.type == "cpu" and type(images) is np.ndarray:  # and not a memory map, or a Subset of one
        return Resident(images, device)
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_host_memory()
    return Resident(images, device) if images.nbytes <= _SHARE * free else Streaming(images, device)
