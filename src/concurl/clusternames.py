"""The names that the user gave the clusters."""

from __future__ import annotations

import json
from pathlib import Path

from concurl.errors import UserError


def names_of(run: Path) -> dict[int, str]:
    """Those of the run's names.json; none if there is no such file."""
    path = run / "names.json"
    return read_names(path) if path.exists() else {}


def read_names(path: Path) -> dict[int, str]:
    """From a json file like {"0": "birds", ...}; a cluster with null, or left out, has no name yet."""
    try:
        # -sig: some editors begin every file with a byte order mark
        given = json.loads(path.read_text(encoding="utf-8-sig"))
        return {int(cluster): str(name) for cluster, name in given.items() if name is not None}
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        where = f" ({error})" if isinstance(error, json.JSONDecodeError) else ""  # mostly a comma too many
        raise UserError(f'{path}: an object like {{"0": "birds", "1": "cars"}} is needed{where}') from None
