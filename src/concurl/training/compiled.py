"""Pieces of a step that torch.compile has fused; where the compiler fails, training goes on with the plain code."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from concurl.data.storage.store import default_folder
from concurl.errors import UserError, said_by
from concurl.network.encoder import ResNet
from concurl.network.model import Model
from concurl.training.interrupt import TERMINATIONS
from concurl.training.step import Step
from concurl.views.views import MakeViews, Views

log = logging.getLogger("concurl")
T = TypeVar("T")

MOST_FORMS = 256  # of a compiled block: in a ResNet seven shapes, with and without gradients, per batch and image size


class _OrPlain:
    """Runs fused code, or the plain code it was made from once the fused has failed in a form that never ran before."""

    def __init__(self) -> None:
        self._proven: set[bool] = set()  # forms (of the step: with clustering, without) that have run once
        self._failed = False
        _make_ready()

    def decided(self, form: bool) -> bool:
        return self._failed or form in self._proven

    def __call__(self, form: bool, fused: Callable[[], T], plain: Callable[[], T]) -> T:
        if self._failed:
            return plain()
        try:
            result = fused()
        except (torch.OutOfMemoryError, UserError):  # the second: of a user's own views
            raise
        except Exception as error:  # compilers fail in many classes, forward and backward
            if self.decided(form):
                raise
            log.warning("torch.compile failed (%s): going on without it", said_by(error))
            self._failed = True
            return plain()
        self._proven.add(form)
        return result


class CompiledStep:
    """A Step whose pieces torch.compile has fused, forward and backward; plain again if that fails.

    The networks are compiled block by block: equal blocks share their code, so a ResNet-34 takes no longer to compile than
    a ResNet-18. The fused pieces are in place only during a step; other passes (other shapes, evaluation) stay plain.
    """

    def __init__(self, step: Step) -> None:
        self.step = step
        self._run = _OrPlain()
        places: list[tuple[Any, str]] = [(step, "objective"), *((block, "forward") for block in blocks(step.model))]
        if isinstance(step.views, Views):  # a user's own may draw numbers on the host
            places.append((step, "views"))
        self._compiled = [(*place, torch.compile(getattr(*place), dynamic=False)) for place in places]

    def __call__(self, images: Tensor, ids: Tensor, number: Tensor, settings: Tensor, clustering: bool) -> Tensor:
        # A step that fails halfway is taken again, but may already have changed batch norm's statistics and the queue.
        buffers = [] if self._run.decided(clustering) else [*self.step.model.buffers(), *self.step.queue.buffers()]
        before = [buffer.clone() for buffer in buffers]

        def fused() -> Tensor:
            with self._in_place():
                return self.step(images, ids, number, settings, clustering)

        def plain() -> Tensor:
            self.step.optimizer.zero_grad()  # the failed step may have left gradients
            for buffer, value in zip(buffers, before, strict=True):
                buffer.copy_(value)
            return self.step(images, ids, number, settings, clustering)

        return self._run(clustering, fused, plain)

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        before = [(owner, name, vars(owner).get(name)) for owner, name, _ in self._compiled]
        for owner, name, compiled in self._compiled:
            object.__setattr__(owner, name, compiled)
        try:
            yield
        finally:
            for owner, name, found in before:
                object.__delattr__(owner, name) if found is None else object.__setattr__(owner, name, found)


class CompiledViews:
    """Views that torch.compile has fused; plain again if that fails. On several ranks nothing else is compiled.

    Views are made before the step sends anything, so a rank whose compiler fails can make them again on its own. In the
    networks or codes it would send its sums twice, and the others would take them for those of the next layer.
    """

    def __init__(self, views: MakeViews) -> None:
        self._run = _OrPlain()
        self._plain: MakeViews = views
        self._fused: MakeViews = torch.compile(views, dynamic=False)

    def __call__(self, *given: Tensor) -> Sequence[Tensor]:
        return self._run(True, lambda: self._fused(*given), lambda: self._plain(*given))


def blocks(model: Model) -> Iterator[nn.Module]:
    """The pieces of the networks that are compiled separately."""
    for branch in (model.online, model.target):
        encoder = branch.encoder
        yield from (encoder.stem, *encoder.stages) if isinstance(encoder, ResNet) else (encoder,)
        yield branch.projector
        yield branch.cluster_head
    yield model.predictor


def _make_ready() -> None:
    import torch._dynamo
    import torch._inductor.config  # imported here, as it takes a second

    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, MOST_FORMS)
    # Do not look for the fastest form of each pointwise kernel: steps are as fast without, and start ten seconds sooner.
    torch._inductor.config.triton.autotune_pointwise = False
    _keep_kernels()
    _gather_in_pooling()
    if torch.cuda.is_available():
        _start_compilers()


def _keep_kernels() -> None:
    """Keep compiled kernels beside the packed images: torch's own place is in /tmp, which a restart empties."""
    try:
        from torch._inductor.runtime.cache_dir_utils import cache_dir, default_cache_dir

        if cache_dir() != default_cache_dir():
            return  # the user has said where
        folder = default_folder() / "compiled"
        folder.mkdir(parents=True, exist_ok=True)
    except (ImportError, OSError, UserError) as error:
        log.debug("compiled kernels are kept where torch keeps them: %s", error)
        return
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)


def _gather_in_pooling() -> None:
    """Compute max-pooling's gradient by gathering, for each pixel, from the windows that contain it.

    Compiled code would scatter it, with atomic sums on a GPU: their order, and so the last bits, differ from run to run.
    """
    try:
        from torch._inductor.decomposition import decompositions, fast_random_decomps

        decompositions.pop(torch.ops.aten.max_pool2d_with_indices_backward.default, None)
        fast_random_decomps.cache_clear()  # holds a copy if something has been compiled before
    except (ImportError, AttributeError):
        log.debug("this torch decomposes in another way")


def _start_compilers() -> None:
    """Start torch's compiling processes so that they ignore SIGTERM and SIGHUP; they end with this process.

    A signal to the whole process group (by a scheduler, `timeout` or a closed terminal) would kill them, and the step that
    we want to finish and save would wait for them for ever.
    """
    if threading.current_thread() is not threading.main_thread():
        return  # handlers can only be set there
    before = {number: signal.signal(number, signal.SIG_IGN) for number in TERMINATIONS}
    try:
        from torch._inductor.async_compile import AsyncCompile

        AsyncCompile.warm_pool()
    except (ImportError, AttributeError):
        log.debug("this torch starts its compiling processes in another way")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
