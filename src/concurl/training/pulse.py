"""When the ranks agree on stopping and saving: all in the same step, about once a second."""

from __future__ import annotations

import time

from concurl.training.distributed import World


class Pulse:
    """A checkpoint needs all ranks in the same step, but a signal reaches one before another, and their clocks differ.

    Asking in every step would make each host wait for the slowest; so they also agree on the step of the next question.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self._next = 0
        self._last = (0, 0.0)  # step and time of the last question

    def agreed(self, step: int, asked: int | None, due: bool) -> tuple[int | None, bool]:
        """(the signal that some rank was sent, or None; whether a checkpoint is due on some rank)."""
        if self.world.size == 1:
            return asked, due
        if step < self._next:
            return None, False
        now = time.monotonic()
        pace = (step - self._last[0]) / max(1e-3, now - self._last[1]) if self._last[1] else 1
        self._last = step, now
        signal, due_somewhere, wait = self.world.agree(asked or 0, int(due), max(1, int(pace)))
        self._next = step + wait
        return signal or None, bool(due_somewhere)
