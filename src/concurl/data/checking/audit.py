"""One row per file: can it be used, and if not, why. Nothing here imports torch.

| status       | meaning                                                                              |
|--------------|--------------------------------------------------------------------------------------|
| ok           | used; `reason` names what is unusual about it (gray, alpha, 16-bit, animated, ...)   |
| duplicate    | the same bytes as an earlier file that is ok: left out, or it would count twice      |
| unreadable   | damaged, not to be opened, or its decoder crashed or hung                            |
| truncated    | the file ends before the picture does                                                |
| empty        | 0 bytes                                                                              |
| too small    | a side of fewer than 8 pixels                                                        |
| too large    | more than 64 million pixels, or more memory or work than a decoder may take          |
| not an image | none of the known formats                                                            |

Every file is decoded to its last row, as nothing less finds the truncated ones.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from concurl.amounts import counted
from concurl.atomic import written_aside
from concurl.csvfile import csv_lines
from concurl.data.checking.duplicates import Firsts
from concurl.data.checking.examine import examined, task_for
from concurl.data.checking.workers import ordered_map, worker_count
from concurl.data.files.entry import PathLike
from concurl.data.files.listing import Listing, list_source
from concurl.data.pictures.decode import FIRST_PAGE
from concurl.data.pictures.reading import OWN, Reading
from concurl.errors import one_line
from concurl.progress import Stages, silent

EXAMINE = "concurl.data.checking.examine:examine"


@dataclass(frozen=True)
class Row:
    """What the audit says about one file."""

    path: str
    status: str
    reason: str = ""
    width: int = 0  # as the file says, before any EXIF rotation
    height: int = 0
    mode: str = ""  # Pillow's
    format: str = ""
    bytes: int = 0
    sha: str = ""  # SHA-256 of the content; empty where the content was not read


@dataclass
class Summary:
    """The rows, counted."""

    files: int = 0
    bytes: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    oddities: Counter[str] = field(default_factory=Counter)  # among those that are ok
    formats: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)  # for each status but ok: the first file of it, and why

    def add(self, row: Row) -> None:
        self.files += 1
        self.bytes += row.bytes
        self.statuses[row.status] += 1
        if row.status == "ok":
            self.formats[row.format] += 1
            self.oddities.update(row.reason.split(", ") if row.reason else ())
        else:
            self.examples.setdefault(row.status, one_line(f"{row.path}: {row.reason}"))

    def unusual(self) -> list[str]:
        """What was met in the files that are ok."""
        lines = [f"unusual, and handled: {_counted(self.oddities)}"] if self.oddities else []
        if self.oddities[FIRST_PAGE]:
            lines.append(f"{FIRST_PAGE}: the others are not looked at; save those that matter as files of their own")
        return lines

    def lines(self) -> list[str]:
        """All counts, without the examples."""
        lines = [f"{counted(self.files, 'file')}, {self.bytes:,} bytes: {_counted(self.statuses) or 'nothing'}"]
        if self.formats:
            lines.append(f"formats: {_counted(self.formats)}")
        return lines + self.unusual()

    def __str__(self) -> str:
        examples = [f"{status}, for example {example}" for status, example in self.examples.items()]
        return "\n".join(self.lines() + examples)


def audit(
    source: PathLike | Iterable[PathLike],
    *,
    reading: Reading = OWN,
    workers: int | None = None,
    progress: Stages = silent,
) -> Iterator[Row]:
    """The rows as they come, by the bytes of the files' names."""
    listing = list_source(source)
    return (
        row for row, _ in inspect(listing, None, reading=reading, workers=workers, progress=progress, stage="audit")
    )


def inspect(
    listing: Listing,
    size: int | None,
    *,
    reading: Reading = OWN,
    keep_duplicates: bool = False,
    workers: int | None = None,
    progress: Stages = silent,
    stage: str = "read",
) -> Iterator[tuple[Row, NDArray[np.uint8] | None]]:
    """Audit and decode in one pass: each file's row and, where it is ok and `size` is given, its pixels."""
    total = len(listing)
    tasks = (task_for(entry, listing.root, size, reading) for entry in listing)
    results = ordered_map(EXAMINE, tasks, workers=worker_count(workers, total))
    firsts = None if keep_duplicates else Firsts(listing.sizes)
    for index, result in enumerate(results):
        entry = listing[index]
        fields, pixels = examined(result, size)
        # what is refused by its first bytes is not read, but its size is known all the same
        row = Row(entry.text, **({"bytes": entry.size} | fields))
        if row.status == "ok" and firsts is not None:
            first = firsts.first(row.bytes, row.sha, index)
            if first != index:
                reason = f"the same content as {listing[first].text}"
                row, pixels = dataclasses.replace(row, status="duplicate", reason=reason), None
        progress(stage, index + 1, total)
        yield row, pixels


def summarise(rows: Iterable[Row]) -> Summary:
    """Count the rows, and keep none of them."""
    summary = Summary()
    for row in rows:
        summary.add(row)
    return summary


def write_csv(rows: Iterable[Row], path: Path) -> Summary:
    """Write the rows as they come, and count them."""
    summary = Summary()
    with written_aside(path) as file:
        file.writelines(csv_lines([[column.name for column in dataclasses.fields(Row)]]))
        for row in rows:
            file.writelines(csv_lines([dataclasses.astuple(row)]))
            summary.add(row)
    return summary


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.most_common())
