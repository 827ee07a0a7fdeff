"""What a spreadsheet may do to assignments.csv: sort it, save it in another form of csv, or take names that are typed into it.

Its rows belong to those of embeddings.npy one by one, so that a page made from a sorted table would be wrong without a word.
summary.json therefore keeps what was written: `order`, a hash of the paths in their order, and the clusters' `names`.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from concurl.csvfile import read_rows
from concurl.errors import UserError, call
from concurl.runs.summary import read_summary

NUMBERS = ("confidence", "margin", "agreement", "outlier")


def order_of(paths: Iterable[str]) -> str:
    """A hash of the paths in this order."""
    order = hashlib.sha256()
    for path in paths:
        order.update(_bytes(path) + b"\0")
    return order.hexdigest()


def _bytes(path: str) -> bytes:
    """As the csv has it, in whatever locale it is read."""
    return path.encode(errors="surrogateescape")


class Table:
    """A run's assignments.csv as it is found, with the rows in the order in which they were written."""

    def __init__(self, file: Path) -> None:
        self.path = file
        try:
            self.columns, rows = read_table(file)
            if lost := [column for column in ("path", "cluster", "name") if column not in self.columns]:
                raise ValueError(f"no column {lost[0]}")
            path, cluster, self.name_at = map(self.columns.index, ("path", "cluster", "name"))
            self.rows = [(row[path], int(row[cluster]), row[self.name_at], row) for row in rows]  # and all its cells
        except (csv.Error, ValueError, IndexError) as error:
            raise _useless(file, error) from None
        summary = read_summary(file.parent)
        self.was_sorted = self._restore_order(summary.get("order"))
        self._named_before: dict[str, str] = summary.get("names", {})

    def typed(self) -> dict[int, str]:
        """The names that were typed into the column since it was written, one for each cluster that has any."""
        found = {}
        for cluster, names in sorted(self._names().items()):
            new = sorted(names - {"", self.named_before(cluster)})
            if len(new) > 1:
                raise UserError(
                    f"{self.path}: cluster {cluster} has several names in the column name: {', '.join(new[:3])}; a name is "
                    "for a whole cluster, so keep one (remarks may have a column of their own)"
                )
            if new:
                found[cluster] = new[0]
        return found

    def named_before(self, cluster: int) -> str:
        """The name of names.json that the column had when it was written."""
        return self._named_before.get(str(cluster), "")

    def named(self, names: dict[int, str]) -> list[list[str]]:
        """All lines of the table, the columns' own first, with these names."""
        at = self.name_at
        return [self.columns, *([*row[:at], names.get(c, ""), *row[at + 1 :]] for _, c, _, row in self.rows)]

    def _names(self) -> dict[int, set[str]]:
        found: dict[int, set[str]] = {}
        for _, cluster, name, _ in self.rows:
            found.setdefault(cluster, set()).add(_as_typed(name))
        return found

    def _restore_order(self, order: object) -> bool:
        """Put the rows into this order; True if they were in another."""
        if order in (None, self._order()):
            return False
        self.rows.sort(key=lambda row: _bytes(row[0]))  # as all images are sorted
        if self._order() != order:
            raise _useless(self.path, "its rows are not those of the run, or in an order that cannot be undone")
        return True

    def _order(self) -> str:
        return order_of(path for path, *_ in self.rows)


def read_assignments(folder: Path) -> list[dict[str, str]]:
    """The rows of a run's assignments.csv by its columns, in the order in which they stand; each has all that we write."""
    path = folder / "assignments.csv"
    if not path.is_file():
        go_on = call("fit", "--resume", "-o", folder)
        raise UserError(f"{path} is missing: the run is not finished; wait for it, or go on with {go_on}")
    try:
        columns, lines = read_table(path)
    except csv.Error as error:
        raise _useless(path, error) from None
    rows = [dict(zip(columns, line, strict=False)) for line in lines]
    for number, row in enumerate(rows, start=1):
        if not re.fullmatch(r"\d{1,9}", row.get("cluster", "")):
            raise _useless(path, f"row {number} has cluster {row.get('cluster', '')[:20]!r}")
        if not row.get("path") or not row.get("status"):
            raise _useless(path, f"row {number} has no path, or no status")
    if not rows:
        raise _useless(path, "no rows")
    return rows


def labelled_paths(folder: Path) -> list[str]:
    """The paths of assignments.csv, as they are on the disk."""
    return [row["path"] for row in read_assignments(folder)]


def read_table(path: Path) -> tuple[list[str], list[list[str]]]:
    """Columns and rows, without the empty lines (,,,,) and the decimal commas that a spreadsheet may put in."""
    columns, *rows = [row for row in read_rows(path) if any(row)] or [[]]
    numbers = {at for at, column in enumerate(columns) if column in NUMBERS}
    return columns, [[cell.replace(",", ".") if at in numbers else cell for at, cell in enumerate(row)] for row in rows]


def _useless(path: Path, why: object) -> UserError:
    anew = call("fit", "--resume", "-o", path.parent)
    return UserError(
        f"{path}: no valid assignments ({why}), as a spreadsheet may leave them; make them anew with {anew}"
    )


def _as_typed(name: str) -> str:
    """Without blanks; bytes that are no UTF-8 are of Windows, where Excel's plain csv comes from."""
    try:
        name.encode()
    except UnicodeEncodeError:
        name = name.encode(errors="surrogateescape").decode("cp1252", errors="replace")
    return name.strip()
