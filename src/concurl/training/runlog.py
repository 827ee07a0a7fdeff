"""What a run says while it runs: metrics.jsonl for programs, one line with the remaining time for people."""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

from tqdm import tqdm

log = logging.getLogger("concurl")


class MetricsFile:
    """metrics.jsonl: one line per epoch, flushed at once. Without a folder the rows are only kept in memory."""

    def __init__(self, folder: Path | None) -> None:
        self.path = None if folder is None else folder / "metrics.jsonl"
        self.rows: list[dict[str, Any]] = []

    def rewind(self, epoch: int) -> None:
        """Forget the rows of `epoch` and later: a resumed run writes them again."""
        if self.path is None:
            self.rows = [row for row in self.rows if row["epoch"] < epoch]
            return
        self.rows = [row for row in read_metrics(self.path) if row["epoch"] < epoch]
        aside = self.path.with_suffix(".part")
        aside.write_text("".join(_line(row) for row in self.rows), encoding="utf-8")
        aside.replace(self.path)

    def append(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        if self.path is not None:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(_line(row))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics.jsonl; a last line cut off by a kill is passed over."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row) + "\n"


class Progress:
    """One line per stage: a bar on a terminal, a log line now and then elsewhere."""

    def __init__(self, stage: str, total: int, unit: str, done: int = 0) -> None:
        self.stage, self.total, self.unit, self.done = stage, total, unit, done
        self.begun = self.last_said = time.monotonic()
        self.first = done
        self.bar: Any = None
        if log.isEnabledFor(logging.INFO) and sys.stderr.isatty():
            self.bar = tqdm(total=total, initial=done, desc=stage, unit=unit, leave=True, dynamic_ncols=True)

    def advance(self, n: int, note: str = "") -> None:
        self.done += n
        if self.bar is not None:
            self.bar.set_postfix_str(note, refresh=False)
            self.bar.update(n)
            return
        now = time.monotonic()
        if now - self.last_said >= 30 or self.done >= self.total:
            self.last_said = now
            left = (now - self.begun) / max(1, self.done - self.first) * (self.total - self.done)
            log.info("%s: %d of %d %s, %s left  %s", self.stage, self.done, self.total, self.unit, _clock(left), note)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"
