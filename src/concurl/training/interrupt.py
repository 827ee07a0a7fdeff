"""SIGINT, SIGTERM and SIGHUP: the step in flight is finished, the run saved; a second SIGINT stops at once.

Outside of the training loop there is nothing to finish, and they stop the work where it stands.
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


TERMINATIONS = (signal.SIGTERM, signal.SIGHUP)  # asked to go; and the terminal has gone


class Terminated(KeyboardInterrupt):
    """One of those, in the form of the other interruption: what cleans up after Ctrl-C cleans up after it too."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def termination_as_exception() -> Iterator[None]:
    """They raise Terminated, as SIGINT raises KeyboardInterrupt: workers are stopped, half files removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = [number for number in TERMINATIONS if number == signal.SIGTERM or not _ignored(number)]
    before, hook = {number: signal.signal(number, _terminate) for number in heard}, sys.unraisablehook
    sys.unraisablehook = partial(_ask_again, hook)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook = hook


def _ignored(number: int) -> bool:
    """By who started us: a shell's background job shall not hear Ctrl-C, nor one under nohup that the terminal has gone."""
    return signal.getsignal(number) is signal.SIG_IGN


def _terminate(number: int, frame: FrameType | None) -> None:
    for other in TERMINATIONS:  # one is enough: a second must not break into the cleaning up
        signal.signal(other, signal.SIG_IGN)
    raise Terminated(number)


def _ask_again(otherwise: Callable[[Any], object], lost: Any) -> None:
    """An interruption that came during a destructor: Python drops those, so it is sent once more, a moment later."""
    if not isinstance(lost.exc_value, KeyboardInterrupt):
        otherwise(lost)
        return
    number: int = signal.SIGINT
    if isinstance(lost.exc_value, Terminated):
        number = lost.exc_value.number
        signal.signal(number, _terminate)
    threading.Timer(0.01, os.kill, (os.getpid(), number)).start()


class SignalWatch:
    """Within its `with` block, remembers the signal that asked the run to stop."""

    def __init__(self) -> None:
        self.caught: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> SignalWatch:
        if threading.current_thread() is threading.main_thread():  # Python only lets this thread set handlers
            for number in (signal.SIGINT, *TERMINATIONS):
                if not _ignored(number):
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def stop_if_asked(self) -> None:
        """The interruption that was held back, at a moment that can bear it."""
        if self.caught in TERMINATIONS:
            raise Terminated(self.caught)
        if self.caught is not None:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.caught == signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.caught = number
