"""summary.json: what a finished run says about itself, in numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from concurl.atomic import write_whole
from concurl.errors import UserError


def write_summary(folder: Path, summary: Mapping[str, Any]) -> None:
    """A line for each value, not for each number: the votes of the ensemble are K x K of them."""
    lines = (f"{json.dumps(name)}: {json.dumps(value)}" for name, value in summary.items())
    write_whole(folder / "summary.json", ("{\n  " + ",\n  ".join(lines) + "\n}\n").encode())


def read_summary(folder: Path) -> dict[str, Any]:
    """What was written, without names and scores of another form than ours; empty where nothing was, as in a model folder."""
    found = read_object(folder / "summary.json")
    fits = {"names": _is_table(found.get("names"), str), "scores": _is_scores(found.get("scores"))}
    return {name: value for name, value in found.items() if fits.get(name, True)}


def read_object(path: Path) -> dict[str, Any]:
    """A run's file of json; empty where it is not there, or holds something else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: no valid json ({error}); repair or delete it") from error
    return found if isinstance(found, dict) else {}


def _is_scores(found: object) -> bool:
    return found is None or (isinstance(found, dict) and all(_is_table(of, int, float) for of in found.values()))


def _is_table(found: object, *kinds: type) -> bool:
    return isinstance(found, dict) and all(isinstance(value, kinds) for value in found.values())


def change_summary(folder: Path, **changes: Any) -> None:
    """Replace some of the values in a finished run's summary.json."""
    write_summary(folder, read_summary(folder) | changes)
