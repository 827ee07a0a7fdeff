"""The whole step replayed as one CUDA graph, and the choice of a step's fastest form."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from concurl.training.compiled import CompiledStep, CompiledViews
from concurl.training.parallel import distribute_step
from concurl.training.sidestream import SideStream
from concurl.training.step import Step
from concurl.views.views import Views

TakeStep = Callable[[Tensor, Tensor, Tensor, Tensor, bool], Tensor]
"""(images, ids, number, settings, clustering) -> (loss, l1, l2, l3), as Step.__call__ has it."""

WARM_UP = 3  # steps before the capture: they create the optimiser's state and let libraries choose kernels


def fast_form(step: Step, compiling: bool) -> TakeStep:
    """The fastest form of a step: on a GPU compiled and captured; on several ranks only its views are compiled.

    Views that a user wrote may draw numbers on the host, which a recording would repeat for ever: they stay plain, and a
    step with them is compiled but not captured.
    """
    ours = isinstance(step.views, Views)
    if step.world.size > 1:
        if compiling and ours:
            step.views = CompiledViews(step.views)
        distribute_step(step)
        return step
    if not compiling:
        return step
    compiled = CompiledStep(step)
    if not (ours and step.A.is_cuda):
        return compiled
    step.side = SideStream(step.A.device)
    return CapturedStep(compiled, SideStream(step.A.device))


class CapturedStep:
    """A step that is recorded as a CUDA graph and then replayed: one launch instead of hundreds.

    The first steps, and the first after clustering begins (where the step changes its form), run without the graph; they
    are ordinary steps of training. The recording itself executes nothing.
    """

    def __init__(self, step: TakeStep, side: SideStream) -> None:
        self.step, self.side = step, side  # torch records no graph on the main stream
        self._form: bool | None = None
        self._plain_steps = 0
        self._graph: torch.cuda.CUDAGraph | None = None
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
        with self.side.beside():
            losses = self.step(images, ids, number, settings, clustering)
        self.side.join()
        return losses

    def _record(self, images: Tensor, ids: Tensor, number: Tensor, settings: Tensor, clustering: bool) -> None:
        self._inputs = (images.clone(), ids.clone(), number.clone(), settings.clone())
        graph = torch.cuda.CUDAGraph()
        # A graph belongs to the current card: on another it would record nothing, and its replays would do nothing.
        with torch.cuda.device(self.side.stream.device), torch.cuda.graph(graph, stream=self.side.stream):
            self._losses = self.step(*self._inputs, clustering)
        self._graph = graph
