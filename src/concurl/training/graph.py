"""The fast forms of a step: kernels fused by torch.compile, and the whole step replayed as one CUDA graph."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor

from concurl.training.step import Step

log = logging.getLogger("concurl")

TakeStep = Callable[[Tensor, Tensor, Tensor, Tensor, bool], Tensor]
"""(images, ids, number, settings, clustering) -> (loss, l1, l2, l3): Step and its faster forms."""

WARM_UP = 3  # plain steps before capture: they make the optimiser's state and let libraries choose kernels


class CompiledStep:
    """A Step whose views and losses, forward and backward, torch.compile has fused; plain again if that fails."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self._plain: tuple[object, object] | None = (step.views, step.losses)
        self._proven: set[bool] = set()  # forms (with clustering, without) that have run once
        step.views = torch.compile(step.views, dynamic=False)
        step.losses = torch.compile(step.losses, dynamic=False)  # type: ignore[method-assign]

    def __call__(self, images: Tensor, ids: Tensor, number: Tensor, settings: Tensor, clustering: bool) -> Tensor:
        if self._plain is None or clustering in self._proven:
            return self.step(images, ids, number, settings, clustering)
        try:
            losses = self.step(images, ids, number, settings, clustering)
            self._proven.add(clustering)
            return losses
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # compilers fail in many classes, forward and backward
            log.warning("torch.compile failed (%s): going on without it", str(error).strip().splitlines()[0][:200])
            self.step.views, self.step.losses = self._plain  # type: ignore[assignment, method-assign]
            self._plain = None
            self.step.optimizer.zero_grad()
            return self.step(images, ids, number, settings, clustering)


class CapturedStep:
    """A step that is recorded once and then replayed: one launch instead of hundreds.

    The first steps, and the first after clustering begins (the step changes its form there), are taken plainly;
    they are ordinary steps of training. Recording itself executes nothing.
    """

    def __init__(self, step: TakeStep) -> None:
        self.step = step
        self._form: bool | None = None
        self._plain_steps = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._inputs: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
        self._losses: Tensor | None = None

    def __call__(self, images: Tensor, ids: Tensor, number: Tensor, settings: Tensor, clustering: bool) -> Tensor:
        if clustering is not self._form:
            self._form, self._plain_steps, self._graph, self._losses = clustering, 0, None, None
        if self._plain_steps < WARM_UP:
            self._plain_steps += 1
            return self._plainly(images, ids, number, settings, clustering)
        if self._graph is None:
            self._record(images, ids, number, settings, clustering)
        assert self._graph is not None and self._inputs is not None and self._losses is not None
        for static, given in zip(self._inputs, (images, ids, number, settings), strict=True):
            static.copy_(given, non_blocking=True)
        self._graph.replay()
        return self._losses.clone()

    def _plainly(self, images: Tensor, ids: Tensor, number: Tensor, settings: Tensor, clustering: bool) -> Tensor:
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            losses = self.step(images, ids, number, settings, clustering)
        torch.cuda.current_stream().wait_stream(self._stream)
        return losses

    def _record(self, images: Tensor, ids: Tensor, number: Tensor, settings: Tensor, clustering: bool) -> None:
        self._inputs = (images.clone(), ids.clone(), number.clone(), settings.clone())
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=self._stream):
            self._losses = self.step(*self._inputs, clustering)
        self._graph = graph
