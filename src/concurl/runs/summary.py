"""summary.json: what a finished run says about itself, in numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from concurl.aside import write_whole


def write_summary(folder: Path, summary: Mapping[str, Any]) -> None:
    """A line for each value, not for each number: the votes of the ensemble are K x K of them."""
    lines = (f"{json.dumps(name)}: {json.dumps(value)}" for name, value in summary.items())
    write_whole(folder / "summary.json", ("{\n  " + ",\n  ".join(lines) + "\n}\n").encode())


def read_summary(folder: Path) -> dict[str, Any]:
    """What was written; empty where nothing was, as in a model folder."""
    try:
        return dict(json.loads((folder / "summary.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return {}


def change_summary(folder: Path, **changes: Any) -> None:
    """Replace some of the values in a finished run's summary.json."""
    write_summary(folder, read_summary(folder) | changes)
