"""run.json: where a run's images came from, and what was chosen by them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from concurl.errors import UserError

_KINDS = {"limit": int, "train_images": int, "chosen": list}  # of the others: str


@dataclass(frozen=True)
class Provenance:
    """What fit was given. Of an older version's run, some of it is not known."""

    source: str  # as it is found from any folder; of a benchmark, its name
    called_in: str | None = None  # the folder of the call: a list's paths may start from there
    data_dir: str | None = None  # where a benchmark's files are
    limit: int | None = None
    train_images: int | None = None
    recipe: str | None = None
    origin: str | None = None  # the run whose features it has; "from" in the file
    version: str | None = None  # of concurl
    chosen: Sequence[str] = ()  # a line on each choice that the images decided
    root: str | None = None  # of the images' paths; None where they are no files
    images: str | None = None  # a hash of those that are trained on

    @classmethod
    def read(cls, folder: Path) -> Provenance:
        """That of the run in the folder; an error if there is none."""
        try:
            given = json.loads((folder / "run.json").read_text(encoding="utf-8"))
            given["origin"] = given.pop("from", None)
            known = {field.name: given[field.name] for field in fields(cls) if given.get(field.name) is not None}
            if not all(isinstance(value, _KINDS.get(name, str)) for name, value in known.items()):
                raise ValueError
            return cls(**known)
        except (OSError, ValueError, AttributeError, TypeError, RecursionError):
            raise UserError(
                f"{folder} holds no run (no readable run.json); give the folder that concurl fit wrote"
            ) from None

    def to_json(self) -> str:
        named = {"from" if name == "origin" else name: value for name, value in asdict(self).items()}
        return json.dumps(named, indent=2) + "\n"
