"""What a run writes as it goes: metrics.jsonl for programs, train.log for people."""

from __future__ import annotations

import json
import logging
import os
from itertools import starmap
from pathlib import Path
from typing import Any

from concurl.amounts import counted
from concurl.atomic import cannot_write, write_whole
from concurl.progress import OneLine

log = logging.getLogger("concurl")


class MetricsFile:
    """metrics.jsonl: one line per epoch, synced to disk at once. Without a folder the rows are only kept in memory."""

    def __init__(self, folder: Path | None) -> None:
        self.path = None if folder is None else folder / "metrics.jsonl"
        self.rows: list[dict[str, Any]] = []

    def rewind(self, epoch: int) -> None:
        """Forget the rows of `epoch` and later: a resumed run writes them again."""
        if self.path is None:  # then it cannot be resumed
            return
        self.rows = [row for row in read_metrics(self.path) if row["epoch"] < epoch]
        write_whole(self.path, b"".join(_line(row) for row in self.rows))

    def append(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        if self.path is not None:
            _append(self.path, _line(row), sync=True)  # a checkpoint that follows relies on it


class LogFile(logging.Handler):
    """train.log. Here, too, a full disk ends the run with one line, and not with a traceback from logging."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path.absolute()  # while a list is read, the current folder is the one that its paths start from
        self.setFormatter(OneLine("%(asctime)s %(message)s"))
        _append(path, b"")  # so that a folder that cannot be written to is noticed now

    def emit(self, record: logging.LogRecord) -> None:
        _append(self.path, (self.format(record) + "\n").encode(errors="surrogateescape"))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The sound rows of a metrics.jsonl. A damaged line is told; a last one without its end is what a kill leaves."""
    text = path.read_bytes() if path.exists() else b""
    rows = [_row(line) for line in text.split(b"\n")]
    if damaged := [number for number, row in enumerate(rows[:-1], start=1) if row is None]:
        others = f" and {counted(len(damaged) - 1, 'other')}" if len(damaged) > 1 else ""
        log.warning("%s: damaged, and so left out: line %d%s", path, damaged[0], others)
    return [row for row in rows if row is not None]


def _row(line: bytes) -> dict[str, Any] | None:
    """What the line holds, or None if it cannot be what was written: an epoch's numbers, lists of them, and nulls."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    sound = isinstance(row, dict) and isinstance(row.get("epoch"), int) and all(starmap(_sound, row.items()))
    return row if sound else None


def _sound(name: str, value: object) -> bool:
    if value is None or name != "cluster_sizes":
        return value is None or _is_number(value)
    return isinstance(value, list) and all(map(_is_number, value))


def _is_number(value: object) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63)


def _append(path: Path, line: bytes, *, sync: bool = False) -> None:
    """Append the whole line, or nothing of it."""
    try:
        with open(path, "ab", buffering=0) as file:
            length = file.seek(0, os.SEEK_END)
            try:
                written = file.write(line)
                if written < len(line):
                    file.write(line[written:])  # there is no room for the rest: this raises the error
                if sync:
                    os.fsync(file.fileno())
            except OSError:
                file.truncate(length)
                raise
    except OSError as error:
        raise cannot_write(error, path, len(line)) from error


def _line(row: dict[str, Any]) -> bytes:
    return json.dumps(row).encode() + b"\n"
