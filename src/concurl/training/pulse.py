"""When the ranks talk about stopping and saving: together, and about once a second."""

from __future__ import annotations

import time

from concurl.training.distributed import World


class Pulse:
    """A signal reaches one rank before another, and clocks differ; a checkpoint needs all ranks at one step.

    To ask in every step would make each host wait for the slowest; so the ranks agree on the next time too.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self._next = 0
        self._last = (0, 0.0)  # step and time of the last talk

    def agreed(self, step: int, asked: int | None, due: bool) -> tuple[int | None, bool]:
        """(signal that some rank was sent, whether some rank's clock says that a checkpoint is due)."""
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
