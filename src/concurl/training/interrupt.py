"""SIGINT and SIGTERM: the step in flight is finished, the run saved; a second SIGINT stops at once.

Outside of the training loop there is nothing to finish, and both signals stop the work where it stands.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType, TracebackType
from typing import Any

from concurl.errors import RunError


class Interrupted(RunError):
    """The run was asked to stop and is saved; the command line exits with 128 + the signal's number."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message, 128 + number)


class Terminated(KeyboardInterrupt):
    """SIGTERM, in the form of the other interruption: what cleans up after Ctrl-C cleans up after it too."""


@contextmanager
def termination_as_exception() -> Iterator[None]:
    """SIGTERM raises Terminated, as SIGINT raises KeyboardInterrupt: workers are stopped, half files removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before, hook = signal.signal(signal.SIGTERM, _terminate), sys.unraisablehook
    sys.unraisablehook = partial(_ask_again, hook)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        sys.unraisablehook = hook


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # one is enough: a second must not break into the cleaning up
    raise Terminated


def _ask_again(otherwise: Callable[[Any], object], lost: Any) -> None:
    """An interruption that came during a destructor: Python drops those, so it is sent once more, a moment later."""
    if not isinstance(lost.exc_value, KeyboardInterrupt):
        otherwise(lost)
        return
    number = signal.SIGINT
    if isinstance(lost.exc_value, Terminated):
        number = signal.SIGTERM
        signal.signal(number, _terminate)
    threading.Timer(0.01, os.kill, (os.getpid(), number)).start()


class SignalWatch:
    """Within its `with` block, remembers the signal that asked the run to stop."""

    def __init__(self) -> None:
        self.caught: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> SignalWatch:
        if threading.current_thread() is threading.main_thread():  # Python only lets this thread set handlers
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:  # a shell's background job shall not hear Ctrl-C
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def stop_if_asked(self) -> None:
        """The interruption that was held back, at a moment that can bear it."""
        if self.caught == signal.SIGTERM:
            raise Terminated
        if self.caught is not None:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.caught == signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.caught = number
