"""The device and the arithmetic of a run."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

from concurl.amounts import counted
from concurl.config import Config
from concurl.cores import usable_cores
from concurl.errors import RunError, UserError, said_by

WORTH_COMPILING = 2_000  # steps: compiling takes up to a minute


@dataclass(frozen=True)
class Arithmetic:
    """The device, the autocast type (None: plain float32) and whether to compile."""

    device: torch.device
    autocast: torch.dtype | None
    compile: str

    @classmethod
    def of(cls, config: Config) -> Arithmetic:
        """What `config` asks for; torch is set accordingly, for the whole process (see `torch_of_its_own`)."""
        device = choose_device(config.device)
        half = config.precision == "bfloat16" or (
            config.precision == "auto" and device.type == "cuda" and torch.cuda.is_bf16_supported()
        )
        if device.type == "cuda":
            torch.set_float32_matmul_precision("high" if half else "highest")
            torch.backends.cudnn.allow_tf32 = half  # float32, if asked for, means all its digits
            torch.backends.cudnn.benchmark = half and not config.reproducible
        elif "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(min(torch.get_num_threads(), usable_cores()))  # torch counts all of the machine's
        return cls(device, torch.bfloat16 if half else None, config.compile)

    def worth_compiling(self, total_steps: int) -> bool:
        """Should a run of so many steps be compiled?"""
        worth = self.device.type == "cuda" and total_steps >= WORTH_COMPILING
        return self.compile == "on" or (self.compile == "auto" and worth)

    def __str__(self) -> str:
        gpu = self.device.type == "cuda"
        name = torch.cuda.get_device_name(self.device) if gpu else f"cpu ({counted(torch.get_num_threads(), 'thread')})"
        return f"{name}, {'bfloat16' if self.autocast else 'float32'}"


@contextmanager
def torch_of_its_own() -> Iterator[None]:
    """Within the block torch's settings are those of a new process; afterwards they are the caller's again.

    That includes what `Arithmetic.of` has set, which would otherwise stay for the whole process.
    """
    threads = torch.get_num_threads()  # of this thread alone, unlike what _SHARED keeps
    with ExitStack() as stack:
        stack.enter_context(_SHARED)
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for device in ("cpu", "cuda"):
            stack.enter_context(torch.autocast(device, enabled=False))
        if torch.get_default_device().type != "cpu":  # only if needed: it makes every call a little slower
            stack.enter_context(torch.device("cpu"))
        try:
            yield
        finally:
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)


class _SharedSettings:
    """torch's settings for all threads at once: the first thread to come in keeps them, the last to leave puts them back."""

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0

    def __enter__(self) -> None:
        cudnn = torch.backends.cudnn
        with self._lock:
            if not self._inside:
                self._dtype, self._matmul = torch.get_default_dtype(), torch.get_float32_matmul_precision()
                self._tf32, self._race = cudnn.allow_tf32, cudnn.benchmark
            self._inside += 1
            torch.set_default_dtype(torch.float32)

    def __exit__(self, *error: object) -> None:
        cudnn = torch.backends.cudnn
        with self._lock:
            self._inside -= 1
            if not self._inside:
                torch.set_default_dtype(self._dtype)
                torch.set_float32_matmul_precision(self._matmul)
                cudnn.allow_tf32, cudnn.benchmark = self._tf32, self._race


_SHARED = _SharedSettings()


@contextmanager
def draws_by_seed(seed: int, device: torch.device) -> Iterator[None]:
    """Within the block torch's own generators are seeded: a user's dropout or views draw from them.

    Ours never do, and afterwards the generators are as they were.
    """
    cards = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cards):
        torch.default_generator.manual_seed(seed)
        for card in cards:
            with torch.cuda.device(card):
                torch.cuda.manual_seed(seed)
        yield


def choose_device(name: str) -> torch.device:
    """The device called `name`; auto is the first GPU, or the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"device={name!r}: choose auto, cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"device={name!r}: choose auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"device={name!r}: torch sees {torch.cuda.device_count()} GPUs here; use --device cpu")
    if device.type == "cuda":
        try:
            torch.cuda.mem_get_info(device)  # the first call to the card: fails if others have taken all its memory
        except RuntimeError as error:
            raise RunError(
                f"device={name!r} cannot be used ({said_by(error)}): free it of other programs, or use --device cpu"
            ) from None
    return device
