"""metrics.jsonl: what a run says to programs while it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


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
