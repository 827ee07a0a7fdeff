"""Run a function of a test in W processes, as torchrun would, and get what each of them returns."""

from __future__ import annotations

import os
import pickle
import socket
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp

from concurl.training.distributed import World


def in_ranks(size: int, work: Callable[..., Any], folder: Path, *arguments: Any) -> list[Any]:
    """[work(world, *arguments) of rank 0, of rank 1, ...]; `work` must be a module's own function."""
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # One server imports torch, once; the ranks are forked from it.
    mp.get_context("forkserver").set_forkserver_preload(["concurl.training.trainer"])
    mp.start_processes(_rank, (size, port, work, folder, arguments), nprocs=size, start_method="forkserver")
    return [pickle.loads((folder / f"rank-{rank}").read_bytes()) for rank in range(size)]


def _rank(rank: int, size: int, port: int, work: Callable[..., Any], folder: Path, arguments: tuple[Any, ...]) -> None:
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    torch.set_num_threads(1)
    world = World.join()
    try:
        (folder / f"rank-{rank}").write_bytes(pickle.dumps(work(world, *arguments)))
    except BaseException:
        traceback.print_exc()
        raise
    world.leave()
