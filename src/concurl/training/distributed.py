"""The processes that train together under torchrun. A single process runs the same code, but sends nothing."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from concurl.errors import RunError, UserError

# What gloo and NCCL say when another process has ended.
_LOST = re.compile("by peer|remote (worker|process)|broken pipe|socket closed", re.IGNORECASE)


@dataclass(frozen=True)
class World:
    """This process is number `rank` of `size`; only rank 0 writes files."""

    rank: int = 0
    size: int = 1
    joined: bool = False  # False: a process group, if there is one, belongs to a script that calls the estimator

    @classmethod
    def join(cls) -> World:
        """The world that torchrun describes in the environment; without torchrun, this process alone."""
        if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
            return cls()
        if missing := [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in os.environ]:
            raise UserError(f"RANK and WORLD_SIZE are set, but not {missing[0]}: start with torchrun, or unset them")
        backend = "gloo"
        if gpus := torch.cuda.device_count():
            local = int(os.environ.get("LOCAL_RANK", 0))
            torch.cuda.set_device(local % gpus)  # "cuda" now means this rank's GPU
            # NCCL refuses two ranks on one GPU. Host tensors always go through gloo, which does not wait for the device.
            backend = "gloo" if int(os.environ.get("LOCAL_WORLD_SIZE", 1)) > gpus else "cpu:gloo,cuda:nccl"
        if not dist.is_initialized():
            # Hours, because one machine may still be decoding images. torchrun notices at once if a process dies.
            dist.init_process_group(backend, timeout=timedelta(hours=6), **_fresh_store())
        return cls(dist.get_rank(), dist.get_world_size(), joined=True)

    def leave(self) -> None:
        """Leave all at the same time: a rank that ends while another still talks to it breaks that rank's threads."""
        if self.joined and dist.is_initialized():
            dist.barrier()
            dist.destroy_process_group()

    @contextmanager
    def lost_rank_told(self) -> Iterator[None]:
        """Within the block: if another rank is lost, this one ends with one line that says so, and no traceback."""
        try:
            yield
        except RuntimeError as error:
            if self.size == 1 or not _LOST.search(str(error)):
                raise
        else:
            return
        raise RunError(
            f"rank {self.rank} stops, as another process of the run has ended; torchrun starts all of them again from "
            "the last checkpoint, as often as --max-restarts allows"
        )

    @property
    def leads(self) -> bool:
        return self.rank == 0

    # ---- who does what ----------------------------------------------------------------------------------

    @property
    def part(self) -> slice:
        """The rows that this rank takes of something that all ranks hold."""
        return slice(self.rank, None, self.size)

    def local(self, batch_size: int) -> int:
        """Images per rank and step: equally many, or the mean of the ranks' gradients would not be the batch's."""
        if batch_size % self.size:
            near = max(self.size, batch_size // self.size * self.size)  # not more: it may be all the images there are
            raise UserError(
                f"batch_size={batch_size} cannot be split over {self.size} processes; use --batch-size {near}"
            )
        return batch_size // self.size

    def share(self, order: Tensor, batch_size: int) -> Tensor:
        """This rank's slice of every batch in an epoch's order (a multiple of batch_size long)."""
        local = self.local(batch_size)
        return order.view(-1, batch_size)[:, self.rank * local : (self.rank + 1) * local].flatten()

    def stretches(self, n: int, block: int) -> list[range]:
        """n rows as one range of whole blocks for each rank, or all for rank 0 if there is less than a block for each."""
        if n < self.size * block:
            return [range(n)] + [range(n, n)] * (self.size - 1)
        cuts = [-(-n // block) * rank // self.size * block for rank in range(self.size)] + [n]
        return [range(first, end) for first, end in pairwise(cuts)]

    # ---- what goes over the network ---------------------------------------------------------------------

    def sum(self, x: Tensor) -> Tensor:
        """The sum over the ranks, element by element; `mean` likewise."""
        return self._reduced(x, dist.ReduceOp.SUM)

    def mean(self, x: Tensor) -> Tensor:
        return self.sum(x) / self.size

    def log_reduce(self, x: Tensor) -> Tensor:
        """log of the sum of exp(x) over the ranks; a rank without images gives -inf."""
        if self.size == 1:
            return x
        top = self._reduced(x, dist.ReduceOp.MAX)
        return top + torch.log(self.sum(torch.exp(x - top)))

    def gather(self, rows: Tensor) -> Tensor:
        """The rows of all ranks, in the order of ranks; each must give equally many."""
        if self.size == 1:
            return rows
        parts = [torch.empty_like(rows, memory_format=torch.contiguous_format) for _ in range(self.size)]
        dist.all_gather(parts, rows.contiguous())
        return torch.cat(parts)

    def collect(self, rows: Tensor, stretches: list[range]) -> Tensor:
        """On rank 0, the rows of all ranks (in host memory), as `stretches` divides them; on the others, their own."""
        if self.size == 1 or not stretches[self.rank]:
            return rows
        if not self.leads:
            dist.send(rows.contiguous(), dst=0)
            return rows
        whole = rows.new_empty(stretches[-1].stop, *rows.shape[1:])
        whole[: len(rows)] = rows
        for rank, stretch in enumerate(stretches):
            if rank and stretch:
                dist.recv(whole[stretch.start : stretch.stop], src=rank)
        return whole

    def broadcast(self, *tensors: Tensor) -> None:
        """Replace the values of these tensors with those of rank 0."""
        for tensor in tensors if self.size > 1 else ():
            dist.broadcast(tensor, src=0)

    def agree(self, *values: int) -> list[int]:
        """The largest of each value over the ranks, without waiting for the device."""
        if self.size == 1:
            return list(values)
        return [int(x) for x in self._reduced(torch.tensor(values, dtype=torch.int64), dist.ReduceOp.MAX)]

    def check_same(self, what: str, values: Iterable[Tensor | str]) -> None:
        """Stop if a rank's values differ from those of rank 0: going on would mix two models."""
        if self.size == 1:
            return
        hashes = self.gather(torch.frombuffer(bytearray(_digest(values)), dtype=torch.uint8)[None])
        odd = [rank for rank, other in enumerate(hashes) if not torch.equal(other, hashes[0])]
        if odd:
            ranks = ", ".join(map(str, odd))
            raise RunError(
                f"{what} of rank {ranks} differ from those of rank 0: nothing was written; check that all machines "
                "have the same versions, files and GPUs, and resume from the last checkpoint"
            )

    def _reduced(self, x: Tensor, how: dist.ReduceOp.RedOpType) -> Tensor:
        if self.size == 1:
            return x
        whole = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(whole, how)
        return whole


def _fresh_store() -> dict[str, Any]:
    """After a restart on one machine, a new store: torchrun's still holds the addresses of the dead processes."""
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if restarts == "0" or os.environ.get("GROUP_WORLD_SIZE") != "1":  # each machine counts its own restarts
        return {}
    store, rank, size = next(rendezvous("env://"))
    fresh = dist.PrefixStore(f"restart-{restarts}", store)  # type: ignore[attr-defined]
    return {"store": fresh, "rank": rank, "world_size": size}


def _digest(values: Iterable[Tensor | str]) -> bytes:
    table = hashlib.sha256()
    for value in values:
        if isinstance(value, str):
            table.update(os.fsencode(value) + b"\0")
        else:
            table.update(value.detach().cpu().flatten().view(torch.uint8).numpy().data)
    return table.digest()
