"""Run a function of a test, or a whole training, in W processes, as torchrun would; what each of them returns."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp

from concurl.config import Config
from concurl.training.distributed import World
from concurl.training.trainer import Trainer

RANKS = [2, pytest.param(4, marks=pytest.mark.slow)]


def in_ranks(size: int, work: Callable[..., Any], folder: Path, *arguments: Any) -> list[Any]:
    """[work(world, *arguments) of rank 0, of rank 1, ...]; `work` must be a module's own function."""
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # One server imports, once, what a training comes to import; the ranks are forked from it.
    mp.get_context("forkserver").set_forkserver_preload(
        ["concurl.runs.run", "pytest", "sklearn.cluster", "torch._dynamo"]
    )
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


def pictures() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (100, 3, 8, 8), dtype=np.uint8)


class Stop(Exception):
    pass


def train(
    world: World,
    config: Config,
    folder=None,
    *,
    double=True,
    resume=False,
    until=None,
    encoder=None,  # its class
    change=lambda trainer: None,  # made before the first step
) -> dict[str, np.ndarray]:
    """A whole training, or one up to a step and its checkpoint; its losses step by step, its weights, its queue."""
    if double:
        torch.set_default_dtype(torch.float64)
        # The losses lift half precision to float32 by .float(); here it must not take float64 down.
        torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign]
    torch.manual_seed(0)
    trainer = Trainer(config, pictures(), folder=folder, world=world, encoder=encoder and encoder())
    change(trainer)
    if double:
        for branch in (trainer.model.online, trainer.model.target):
            branch.register_forward_pre_hook(lambda _, x: (x[0].double(),))
    if resume:
        assert trainer.resume()
    losses, take = [], trainer.take_step

    def noted(*arguments):
        if trainer.step == until:
            trainer.save()
            raise Stop
        losses.append(take(*arguments))
        return losses[-1]

    trainer.take_step = noted  # type: ignore[assignment]
    with contextlib.suppress(Stop):
        trainer.fit()
    state = {name: t.numpy() for name, t in trainer.model.state_dict().items()}
    return state | {"queue": trainer.queue.entries.numpy(), "losses": torch.stack(losses).numpy()}


def train_with(world, arguments, keywords):
    return train(world, *arguments, **keywords)


def trained(size, folder, *arguments, **keywords):
    """`train` in processes of their own, as it changes torch's default type; what each rank returns."""
    return in_ranks(size, train_with, folder, arguments, keywords)
