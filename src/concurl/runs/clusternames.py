"""The names that the user gave the clusters."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

from concurl.atomic import write_whole
from concurl.errors import UserError, no_such

_HALVES = re.compile("[\ud800-\udfff]")  # json can spell half of an emoji, which no file can hold


def names_of(run: Path) -> dict[int, str]:
    """Those of the run's names.json; none if there is no such file."""
    path = run / "names.json"
    return read_names(path) if path.exists() else {}


def read_names(path: Path) -> dict[int, str]:
    """From a json file like {"0": "birds", ...}; a cluster with null or blanks, or left out, has no name yet."""
    try:
        # -sig: some editors begin every file with a byte order mark
        given = json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=lambda pairs: _once(path, pairs))
        names = {int(cluster): _name(name) for cluster, name in given.items()}
        return {cluster: name for cluster, name in names.items() if name}
    except UserError:
        raise
    except FileNotFoundError:
        raise no_such(path) from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:  # an umlaut from an editor on Windows, mostly
        raise UserError(f"{path}: not text in UTF-8; save it again in that encoding") from None
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        where = f" ({error})" if isinstance(error, json.JSONDecodeError) else ""  # mostly a comma too many
        raise UserError(f'{path}: an object like {{"0": "birds", "1": "cars"}} is needed{where}') from None


def write_names(path: Path, names: dict[int, str]) -> None:
    write_whole(path, (json.dumps(as_json(names), indent=2, ensure_ascii=False) + "\n").encode())


def as_json(names: dict[int, str]) -> dict[str, str]:
    return {str(cluster): name for cluster, name in sorted(names.items())}


def _name(given: object) -> str:
    if isinstance(given, bool | list | dict):
        raise TypeError("no name")
    return "" if given is None else _HALVES.sub("\ufffd", str(given)).strip()


def _once(path: Path, pairs: list[tuple[str, object]]) -> dict[str, object]:
    """json lets the last of two equal keys win, which hides a line that was copied and not changed."""
    twice = [key for key, count in Counter(key.lstrip("0") or "0" for key, _ in pairs).items() if count > 1]
    if twice:
        raise UserError(f"{path}: cluster {twice[0]} has two names; keep one of them")
    return dict(pairs)
