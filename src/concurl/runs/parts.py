"""Labels for many images, made in n parts that know nothing of each other and joined at the end.

A part is two files: part-2-of-4.csv and its manifest, part-2-of-4.json, which is written last. A part with a sound
manifest is finished: to start it again costs nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from concurl.atomic import write_whole, written_aside
from concurl.errors import UserError, no_such


@dataclass(frozen=True)
class Part:
    """Number `number` (from 1) of `of` parts."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Part:
        """From "2/4"."""
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        part = cls(int(match[1]), int(match[2])) if match else None
        if part is None or not 1 <= part.number <= part.of:
            raise UserError(f"--shard {text}: I/N is needed, with I from 1 to N, such as 1/4")
        return part

    def share(self, n: int, block: int) -> range:
        """Its share of n images, in whole blocks: consecutive, disjoint, together all of them."""
        blocks = -(-n // block)
        first, end = blocks * (self.number - 1) // self.of, blocks * self.number // self.of
        return range(min(n, first * block), min(n, end * block))

    def csv(self, folder: Path) -> Path:
        return folder / f"part-{self.number}-of-{self.of}.csv"

    def manifest(self, folder: Path) -> Path:
        return folder / f"part-{self.number}-of-{self.of}.json"

    def finished(self, folder: Path, work: dict[str, Any]) -> bool:
        """Is it there, whole, and the outcome of this very work?"""
        try:
            found = json.loads(self.manifest(folder).read_bytes())
            return bool(found["work"] == work and found["sha256"] == _sha256(self.csv(folder)))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return False

    def seal(self, folder: Path, work: dict[str, Any], labelled: int, left_out: int) -> None:
        """Write the manifest of a csv that is complete."""
        counts = {"labelled": labelled, "left_out": left_out}
        about = asdict(self) | counts | {"sha256": _sha256(self.csv(folder)), "work": work}
        write_whole(self.manifest(folder), json.dumps(about, indent=1).encode())


def merge(folder: Path, output: Path) -> tuple[int, int]:
    """Join all parts in `folder` into one csv; how many of its rows are labelled, and how many are left out.

    Refuses to leave a gap or to mix two works.
    """
    manifests = _manifests(folder)
    of, work = manifests[0]["of"], manifests[0]["work"]
    for found in manifests:
        if (found["of"], found["work"]) != (of, work):
            raise UserError(
                f"{folder}: part {found['number']} of {found['of']} comes from another model, source or cut than "
                f"part {manifests[0]['number']} of {of}; keep each work's parts in a folder of their own"
            )
    missing = sorted(set(range(1, of + 1)) - {found["number"] for found in manifests})
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise UserError(f"{folder}: part {missing[0]} of {of}{more} is missing; make it with --shard {missing[0]}/{of}")
    with written_aside(output) as whole:
        for number in range(1, of + 1):
            part = Part(number, of)
            if not part.finished(folder, work):
                raise UserError(
                    f"{part.csv(folder)}: does not match its manifest; delete it and run --shard {number}/{of}"
                )
            with open(part.csv(folder), "rb") as rows:
                if number > 1:
                    rows.readline()  # the columns' names stand once
                shutil.copyfileobj(rows, whole, 2**20)
    return sum(found["labelled"] for found in manifests), sum(found["left_out"] for found in manifests)


def _manifests(folder: Path) -> list[dict[str, Any]]:
    found = []
    for path in sorted(folder.glob("part-*-of-*.json")):
        try:
            about = json.loads(path.read_bytes())
            found.append({key: about[key] for key in ("number", "of", "labelled", "left_out", "work")})
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise UserError(f"{path}: not a readable manifest; delete it and make its part again") from None
    if not folder.exists():
        raise no_such(folder)
    if not found:
        raise UserError(f"{folder}: no finished parts here; make them with concurl predict --shard I/N -o {folder}")
    return found


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
