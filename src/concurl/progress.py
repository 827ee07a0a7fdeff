"""What a run says to people while it runs: one line per stage, with the remaining time."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO
from weakref import WeakSet

from tqdm import tqdm

from concurl.errors import one_line

log = logging.getLogger("concurl")

Stages = Callable[[str, int, int], None]
"""What work in stages calls as it goes on: (stage, done, total)"""

# As tqdm's own, but for the rate: for slow steps tqdm would say "9.26s/ steps".
BAR = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}{postfix}]"
_shown: WeakSet[Progress] = WeakSet()


class OneLine(logging.Formatter):
    """A log line stays one line, whatever is in it."""

    def format(self, record: logging.LogRecord) -> str:
        return one_line(super().format(record))


class AboveBars(logging.StreamHandler[TextIO]):
    """A line that comes while a bar is shown gets a line of its own, above it, unless the bar itself says the same."""

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "drawn", False):
            return
        with tqdm.external_write_mode(file=self.stream):
            super().emit(record)


def speak(quiet: bool) -> None:
    """Progress and warnings go to stderr, results to stdout. Under torchrun only the first process speaks.

    `quiet` is for stderr alone: train.log keeps everything.
    """
    first = os.environ.get("RANK", "0") == "0"
    stderr = AboveBars(sys.stderr)
    stderr.setFormatter(OneLine())
    stderr.setLevel(logging.ERROR if not first else logging.WARNING if quiet else logging.INFO)
    logging.basicConfig(handlers=[stderr], force=True)
    log.setLevel(logging.INFO)


class Progress:
    """One line per stage: a bar on a terminal, a log line now and then everywhere else, as in train.log."""

    def __init__(self, stage: str, total: int, unit: str, done: int = 0) -> None:
        self.stage, self.total, self.unit, self.done = stage, total, unit, done
        self.last_said = time.monotonic()
        self.begun: tuple[float, int] | None = None  # when the first advance came, and how much was done then
        self.bar: Any = None
        if total and _seen() and _on_terminal():
            self.bar = tqdm(
                total=total, initial=done, desc=stage, unit=f" {unit}", bar_format=BAR, leave=True, dynamic_ncols=True
            )
            _shown.add(self)

    def advance(self, n: int, note: str = "") -> None:
        self.done += n
        if self.bar is not None:
            self.bar.set_postfix_str(note, refresh=False)
            self.bar.update(n)
        now = time.monotonic()
        if now - self.last_said >= 30 or self.done >= self.total:
            self.last_said = now
            said = f"{self.stage}: {self.done:,} of {self.total:,} {self.unit}{self._left(now)}  {note}"
            log.info("%s", said.rstrip(), extra={"drawn": self.bar is not None})
        if self.begun is None:  # the first step may include a compilation, which says nothing about the steps to come
            self.begun = now, self.done

    def _left(self, now: float) -> str:
        if self.done >= self.total:
            return ", 0:00 left"
        if self.begun is None or self.done == self.begun[1]:
            return ""
        return f", {_clock((now - self.begun[0]) / (self.done - self.begun[1]) * (self.total - self.done))} left"

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def end_bars() -> None:
    """Close all bars as they stand, so that a last message (a stop, an error) begins on a line of its own."""
    for progress in list(_shown):
        progress.close()


def _seen() -> bool:
    """Is a bar wanted? With --quiet progress goes to train.log alone, and other programs' handlers get lines."""
    handlers = (*log.handlers, *logging.getLogger().handlers)
    shown = any(isinstance(handler, AboveBars) and handler.level <= logging.INFO for handler in handlers)
    return shown and log.isEnabledFor(logging.INFO)


def _on_terminal() -> bool:
    """Programs put what they like in the place of stderr: None, or something that can be written to and no more."""
    isatty = getattr(sys.stderr, "isatty", None)
    return isatty is not None and bool(isatty())


def stages() -> Stages:
    """Shows a line of progress for each stage."""
    bars: dict[str, Progress] = {}
    units = {"audit": "files", "read": "files", "pack": "files", "map": "steps", "suggest": "values of K"}

    def show(stage: str, done: int, total: int) -> None:
        if stage not in bars:  # a bar shows itself when it is made: one for each stage, not for each call
            bars[stage] = Progress(stage, total, units.get(stage, "images"))
        bar = bars[stage]
        bar.advance(done - bar.done)
        if done >= total:
            bar.close()

    return show


def silent(stage: str, done: int, total: int) -> None:
    """The progress of work that nobody watches."""


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"
