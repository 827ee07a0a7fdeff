"""The fast forms of a step take the same steps; where compilation fails, training goes on without it."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rounding import disturb
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch._functorch.aot_autograd import make_boxed_func
from torch._inductor.compile_fx import compile_fx
from torch._inductor.runtime import cache_dir_utils

from concurl.config import Config
from concurl.network.encoder import BasicBlock, ResNet
from concurl.training.compiled import CompiledStep
from concurl.training.graph import CapturedStep, fast_form
from concurl.training.schedule import Settings
from concurl.training.sidestream import SideStream
from concurl.training.trainer import Trainer
from concurl.views.views import Views

TINY = Config(
    n_clusters=3,
    encoder="tiny",
    stem="small",
    image_size=8,
    preset="small",
    projector_hidden=16,
    projector_dim=8,
    cluster_hidden=16,
    embedding_dim=8,
    projection_dim=4,
    n_transforms=5,
    batch_size=8,
    epochs=2,
    cluster_start=0.5,
    compile="on",
    device="cpu",
)
IMAGES = np.random.default_rng(0).integers(0, 256, (16, 3, 8, 8), dtype=np.uint8)


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")


def curve(config: Config) -> list[float]:
    trainer = Trainer(config, IMAGES)
    trainer.fit()
    assert not any("forward" in vars(module) for module in trainer.model.modules())  # evaluation stays plain
    return [row["loss"] for row in trainer.metrics.rows]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("no compiler on this machine\nmore text"), "no compiler on this machine"),
        (NotImplementedError(), "NotImplementedError"),
    ],
    ids=["with a message", "without"],
)
def test_a_failing_compiler_is_named_once_and_changes_nothing(
    error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(function, **settings):
        def call(*args):
            raise error

        return call

    plain = curve(TINY.replace(compile="off"))
    monkeypatch.setattr(torch, "compile", broken)
    with caplog.at_level(logging.WARNING, logger="concurl"):
        assert curve(TINY) == plain
    said = [record.message for record in caplog.records if "torch.compile failed" in record.message]
    assert said == [f"torch.compile failed ({reason}): going on without it"]


def test_a_compiler_that_fails_late_changes_nothing_either(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The networks have run by then, and the queue has taken the batch in."""

    def ended(config: Config) -> dict[str, Tensor]:
        trainer = Trainer(config.replace(queue_size=16, cluster_start=0), IMAGES)
        trainer.fit()
        return trainer.model.state_dict() | trainer.queue.state_dict()

    def broken(function, **settings):
        def call(*args):
            found = function(*args)
            if getattr(function, "__name__", "") == "objective":
                raise RuntimeError("no backward")
            return found

        return call

    plain = ended(TINY.replace(compile="off"))
    monkeypatch.setattr(torch, "compile", broken)
    found = ended(TINY)
    assert "torch.compile failed (no backward)" in caplog.text
    assert {name for name in plain if not torch.equal(found[name], plain[name])} == set()


def test_a_lack_of_memory_is_not_taken_for_a_failing_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(function, **settings):
        def call(*args):
            raise torch.OutOfMemoryError("no room")

        return call

    monkeypatch.setattr(torch, "compile", full)
    with pytest.raises(torch.OutOfMemoryError, match="no room"):
        curve(TINY)


@pytest.mark.parametrize("changes", [{}, {"micro_batch": 4}, {"batch_norm": "apart"}], ids=["plain", "parts", "apart"])
def test_compiled_steps_are_the_same_steps(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    config = TINY.replace(**changes)
    traced_only(monkeypatch)
    plain = curve(config.replace(compile="off"))
    assert curve(config) == pytest.approx(plain, rel=1e-4)


def test_equal_blocks_share_their_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deeper network of the same blocks must not take longer to compile: that is a run's start-up time."""

    class Deep(ResNet):
        def __init__(self, depth: int) -> None:
            super().__init__(BasicBlock, (depth,), stem="small", width=4)

    traced_only(monkeypatch)
    graphs = []
    for depth in (1, 4):
        torch._dynamo.reset()
        before = counters["stats"]["unique_graphs"]
        Trainer(TINY, IMAGES, encoder=Deep(depth)).fit()
        graphs.append(counters["stats"]["unique_graphs"] - before)
    assert graphs[0] == graphs[1] > 0


def test_sums_are_not_left_to_chance() -> None:
    """What is compiled for the large stem, seen before kernels are made of it: a scatter would add by atomics on a GPU."""
    stem = Trainer(TINY.replace(stem="large", compile="on"), IMAGES).model.online.encoder.stem
    torch._dynamo.reset()
    seen: list[str] = []

    def look(graph: torch.fx.GraphModule, inputs: object, **_: object) -> Callable[..., object]:
        seen.extend(str(node.target) for node in graph.graph.nodes)
        return make_boxed_func(graph.forward)

    compiled = torch.compile(stem, backend=lambda graph, inputs: compile_fx(graph, inputs, inner_compile=look))
    compiled(torch.randn(4, 3, 32, 32)).sum().backward()
    assert any("max_pool2d_with_indices_backward" in target for target in seen)
    assert not any("scatter" in target for target in seen)


@pytest.mark.parametrize(
    ("home", "said", "kept"),
    [
        ("home", None, "home/concurl/compiled"),
        ("home", "said", "said"),
        ("file", None, "torchinductor"),  # no folder can be made there
    ],
)
def test_compiled_kernels_are_kept(
    home: str, said: str | None, kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch names its own place, in /tmp, as soon as its compiler is imported: that is not the user's word."""
    (tmp_path / "file").touch()
    monkeypatch.setattr(cache_dir_utils, "default_cache_dir", lambda: str(tmp_path / "torchinductor"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / home))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / (said or "torchinductor")))
    _ = Trainer(TINY.replace(compile="on"), IMAGES)
    assert cache_dir_utils.cache_dir() == str(tmp_path / kept)


def traced_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile with everything but the slow generation of kernels."""
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **how: real(function, backend="aot_eager", **how))


def first_losses(config: Config, change: Callable[[Trainer], None] | None = None) -> Tensor:
    """(loss, l1, l2, l3) of the first 20 steps, one row each; clusters from the 11th on."""
    digits = torch.from_numpy(load_digits().images[:1024] / 16).float()[:, None].expand(-1, 3, -1, -1)
    images = (255 * nn.functional.interpolate(digits, size=32, mode="bicubic").clamp(0, 1)).byte().numpy()
    trainer = Trainer(config.replace(epochs=10, cluster_start=0.5), images)
    if change is not None:
        change(trainer)
    taken, take = [], trainer.take_step
    trainer.take_step = lambda *inputs: taken.append(take(*inputs)) or taken[-1]
    trainer.fit()
    losses = torch.stack(taken).cpu()
    assert losses.shape == (20, 4)
    assert (losses[10:, 2:] > 0).all()
    assert (losses[:10, 2:] == 0).all()
    return losses


def differences(one: Tensor, other: Tensor, title: str) -> Tensor:
    """The relative difference of each step's loss."""
    found = ((one - other).abs() / other.abs().clamp_min(1e-9))[:, 0]
    print(f"\n{title}, relative difference of the loss, step by step:", " ".join(f"{x:.1e}" for x in found))
    return found


def apart(one: Tensor, other: Tensor, title: str) -> float:
    """The largest of them."""
    return float(differences(one, other, title).max())


PAPER = Config(encoder="resnet18", stem="small", image_size=32, preset="natural", batch_size=512, compile="on")


@needs_gpu
def test_a_target_beside_the_online_branch_changes_no_bit() -> None:
    def in_turn(trainer: Trainer) -> None:
        trainer.take_step.step.step.side = None  # of the Step in the CompiledStep in the CapturedStep

    assert torch.equal(first_losses(PAPER), first_losses(PAPER, change=in_turn))


SMALL = PAPER.replace(encoder="tiny", image_size=16, projector_hidden=256, device="cpu")


FORMS = pytest.mark.parametrize(
    "config",
    [pytest.param(PAPER, marks=needs_gpu), pytest.param(SMALL, marks=[needs_compiler, pytest.mark.slow])],
    ids=["GPU", "CPU"],
)


@FORMS
def test_twenty_fast_steps_in_bfloat16_are_those_of_the_plain_float32_path(config: Config) -> None:
    """Each of them at a rate at which a rounding stays small; at the paper's, where all paths part, on the whole."""
    for rate, mean, most in ((1e-5, 0.01, 0.02), (5e-4, 0.01, 0.05)):
        config = config.replace(learning_rate=rate)
        plain = first_losses(config.replace(precision="float32", compile="off"))
        found = differences(first_losses(config.replace(precision="bfloat16")), plain, f"bfloat16, {rate:g}")
        assert found.mean() < mean
        assert found.max() < most


@FORMS
def test_twenty_fast_steps_in_float32_are_those_of_the_plain_path(config: Config) -> None:
    """At a learning rate at which a rounding stays one: compiled sums have another order."""
    config = config.replace(precision="float32", learning_rate=1e-6)
    plain = first_losses(config.replace(compile="off"))
    assert (
        plain[0, 0] > 1.001 * plain[9, 0]
    )  # it learns ten times what is allowed, so gradients and optimiser are seen, too
    assert plain[10, 0] > 1.001 * plain[19, 0]
    assert apart(first_losses(config), plain, "float32, 1e-6") < 1e-4


@needs_gpu
def test_with_kinks_fast_steps_in_float32_differ_no_more_than_plain_ones_from_themselves() -> None:
    """At the paper's learning rate a change of 1e-7 in one weight moves the plain path's losses as far as compilation does."""
    config = PAPER.replace(precision="float32")
    plain = first_losses(config.replace(compile="off"))
    own = apart(first_losses(config.replace(compile="off"), change=disturb), plain, "plain, disturbed")
    assert apart(first_losses(config), plain, "float32") < 10 * own


def test_compiling_processes_outlive_a_sigterm_but_not_us() -> None:
    """A signal to the whole group must not leave the step waiting for them; see CompiledStep."""
    script = """
import os, signal, time
import torch._inductor.config
torch._inductor.config.compile_threads = 2
from concurl.training.compiled import _start_compilers
_start_compilers()
from torch._inductor.async_compile import AsyncCompile
compiler = AsyncCompile.process_pool().process
compiler.send_signal(signal.SIGHUP)
compiler.terminate()
time.sleep(0.5)
print(compiler.pid, compiler.poll(), signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    pid, ended, as_before = said.stdout.split()
    assert (ended, as_before) == ("None", "True")
    until = time.monotonic() + 30
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < until:
        time.sleep(0.1)
    assert not os.path.exists(f"/proc/{pid}")


class Replayed:
    """Stands for a CUDA graph where there is no GPU: replays the recorded step on its static inputs."""

    def replay(self) -> None:
        self.again()


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """CapturedStep without a card."""

    class Stream:
        def __init__(self, device: torch.device) -> None:
            self.device = device

        def wait_stream(self, other: object) -> None:
            pass

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())

    def record(self: CapturedStep, *given: Tensor | bool) -> None:
        *inputs, clustering = given
        self._inputs = tuple(tensor.clone() for tensor in inputs)
        self._graph, self._losses = Replayed(), torch.zeros(4)
        self._graph.again = lambda: self._losses.copy_(self.step(*self._inputs, clustering))

    monkeypatch.setattr(CapturedStep, "_record", record)


@pytest.mark.usefixtures("captured")
def test_a_captured_step_sees_each_batch_and_changes_its_form() -> None:
    def step(images: Tensor, ids: Tensor, number: Tensor, settings: Tensor, clustering: bool) -> Tensor:
        return torch.stack([images.sum(), ids.sum(), number, settings.sum()]) * (10 if clustering else 1)

    take = CapturedStep(step, SideStream(torch.device("cuda")))
    found = [take(*(torch.tensor(float(n)) for _ in range(4)), n >= 8) for n in range(16)]
    assert torch.equal(torch.stack(found), torch.tensor([[n * (10.0 if n >= 8 else 1)] * 4 for n in range(16)]))


def test_the_second_card_of_a_machine_has_streams_and_graphs_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """With those of the first, torch records nothing and says so in a warning: no step after the third would be taken."""
    first, second = torch.device("cuda:0"), torch.device("cuda:1")
    current = [first]

    class Stream:
        def __init__(self, device: torch.device | None = None) -> None:
            self.device = device or current[-1]

        def wait_stream(self, other: Stream) -> None:
            assert self.device == other.device

    @contextmanager
    def on(device: torch.device) -> Iterator[None]:
        current.append(device)
        yield
        current.pop()

    @contextmanager
    def recording(graph: object, stream: Stream) -> Iterator[None]:
        assert current[-1] == stream.device
        yield

    seen: list[torch.device] = []
    for name, fake in (
        *(("Stream", Stream), ("current_stream", Stream), ("stream", lambda stream: on(stream.device))),
        *(("device", on), ("graph", recording), ("CUDAGraph", lambda: SimpleNamespace(replay=lambda: None))),
    ):
        monkeypatch.setattr(torch.cuda, name, fake)
    take = CapturedStep(lambda *given: seen.append(current[-1]) or torch.zeros(4), SideStream(second))
    for _ in range(5):
        take(*torch.zeros(4, 1), False)
    assert seen == [second] * 4  # three steps and the recording
    assert current == [first]


@pytest.mark.usefixtures("captured")
@pytest.mark.parametrize("own", [False, True])
def test_a_step_with_a_users_views_is_not_captured_nor_are_they_compiled(
    own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tensor, "is_cuda", True)
    made = Views(TINY)
    trainer = Trainer(TINY.replace(compile="off"), IMAGES, views=(lambda *given: made(*given)) if own else None)
    take = fast_form(trainer.take_step, compiling=True)
    assert isinstance(take, CompiledStep if own else CapturedStep)
    compiled = take if own else take.step
    assert ("views" in [name for _, name, _ in compiled._compiled]) is not own
    assert (compiled.step.side is None) is own


@pytest.mark.parametrize(
    ("micro_batch", "wanted"),
    [
        (None, ["side begins", "target", "side ends", "forward", "join", "objective"]),
        # the target comes first, for all parts; a recording that waits for a stream without work in it would fail
        (4, ["target", "target", "forward", "objective", "forward", "objective"]),
    ],
)
def test_the_side_stream_is_joined_before_anything_uses_what_it_computed(
    micro_batch: int | None, wanted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a card its target embeddings would otherwise be read before they are there."""
    launched: list[str] = []

    class Side:
        @contextmanager
        def beside(self) -> Iterator[None]:
            launched.append("side begins")
            yield
            launched.append("side ends")

        def join(self) -> None:
            launched.append("join")

    config = TINY.replace(compile="off", micro_batch=micro_batch, codes_from="target")
    step = Trainer(config, IMAGES).take_step
    for owner, name in ((step, "target"), (step.model, "forward"), (step, "objective")):
        plain = getattr(owner, name)
        noted = lambda *given, name=name, plain=plain: launched.append(name) or plain(*given)  # noqa: E731
        monkeypatch.setattr(owner, name, noted)
    step.side = Side()
    views = step.views(torch.from_numpy(IMAGES[:8]), torch.arange(8), torch.tensor(0))
    step.backward(views, Settings(*[1.0] * 6), True)
    assert launched == wanted
