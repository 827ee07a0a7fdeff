"""SIGINT, SIGTERM and SIGHUP: training finishes its step and saves the run; a second SIGINT stops it at once.

Outside the training loop there is nothing to finish, and they stop the work where it is.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from traceback import walk_stack
from types import FrameType
from typing import Any

from concurl.errors import RunError


class Interrupted(RunError):
    """The run was asked to stop and is saved; the command line exits with 128 + the signal's number."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message, 128 + number)


TERMINATIONS = (signal.SIGTERM, signal.SIGHUP)  # a request to end; the terminal was closed


class Terminated(KeyboardInterrupt):
    """One of TERMINATIONS as a KeyboardInterrupt: whatever cleans up after Ctrl-C cleans up after it, too."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def termination_as_exception() -> Iterator[None]:
    """TERMINATIONS raise Terminated, as SIGINT raises KeyboardInterrupt: workers are stopped and partial files removed."""
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
    """By whoever started us: Ctrl-C is not for a shell's background jobs, nor a closed terminal for those under nohup."""
    return signal.getsignal(number) is signal.SIG_IGN


def _terminate(number: int, frame: FrameType | None) -> None:
    for other in TERMINATIONS:  # a second one must not interrupt the cleaning up
        signal.signal(other, signal.SIG_IGN)
    raise Terminated(number)


def _ask_again(otherwise: Callable[[Any], object], lost: Any) -> None:
    """Python drops an interruption that comes during a destructor, so it is sent again a moment later."""
    if not isinstance(lost.exc_value, KeyboardInterrupt):
        otherwise(lost)
        return
    number: int = signal.SIGINT
    if isinstance(lost.exc_value, Terminated):
        number = lost.exc_value.number
        signal.signal(number, _terminate)
    threading.Thread(target=_send, args=(number,)).start()


def _send(number: int) -> None:
    """Send the signal once the main thread has left `_ask_again`, in which what it raises would be lost as well."""
    main = threading.main_thread().ident or 0
    while any(frame.f_code is _ask_again.__code__ for frame, _ in walk_stack(sys._current_frames().get(main))):
        time.sleep(0.01)
    os.kill(os.getpid(), number)


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

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def stop_if_asked(self) -> None:
        """Raise the interruption that was held back."""
        if self.caught in TERMINATIONS:
            raise Terminated(self.caught)
        if self.caught is not None:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.caught == signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.caught = number
