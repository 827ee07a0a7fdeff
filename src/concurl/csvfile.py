"""Csv files: ours are written in one form, and the user's are read in whatever form a spreadsheet has given them."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from concurl.errors import UserError

# What a column may be called, compared without case, spaces, - and _.
NAMES = {
    "path": ("path", "filepath", "imagepath", "file", "filename", "image"),
    "label": ("label", "class"),
}
_UTF16 = tuple(mark.decode(errors="surrogateescape") for mark in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def csv_lines(rows: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    """A line for each row, as it comes. A name stays one field, whatever it holds.

    Paths are written as the bytes they are on disk, so a name that is not UTF-8 makes a line that is not: read it with
    errors="surrogateescape" (pandas: encoding_errors="surrogateescape").
    """
    for row in rows:
        line = io.StringIO(newline="")
        csv.writer(line, lineterminator="\r\n").writerow(row)  # told "\n" alone, it would leave a "\r" unquoted
        yield (line.getvalue().removesuffix("\r\n") + "\n").encode(errors="surrogateescape")


def read_rows(path: str | Path) -> Iterator[list[str]]:
    """All rows, the columns' names first, whichever character divides them; a csv.Error names the line."""
    with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        first = file.readline()
        if first.startswith(_UTF16):  # Excel's "Unicode text"
            raise UserError(f"{path}: text in UTF-16; save it as csv in UTF-8")
        file.seek(0)
        delimiter = max("\t,;", key=first.count)  # a tab for a single column, as names hold commas more often
        # In "id, path" the space is no part of the column's name, nor of the paths; elsewhere a name may begin with one.
        # strict: else a quote that is not closed would take the lines that follow into one field, and nobody would be told.
        reader = csv.reader(file, delimiter=delimiter, skipinitialspace=f"{delimiter} " in first, strict=True)
        try:
            yield from reader
        except csv.Error as error:
            raise csv.Error(f"line {reader.line_num}: {error}; is a quote not closed?") from None


def read_columns(path: str | Path, *wanted: str) -> Iterator[list[str]]:
    """Of each row the fields in the wanted columns, which are keys of NAMES; a field that the row lacks is empty."""
    rows = read_rows(path)
    try:
        places = _places(path, next(rows, []), wanted)
        for row in rows:
            yield [row[place] if place < len(row) else "" for place in places]
    except csv.Error as error:
        raise UserError(f"{path}, {error}") from error


def _places(path: str | Path, header: list[str], wanted: tuple[str, ...]) -> list[int]:
    plain = [re.sub(r"[\s_-]", "", column.lower()) for column in header]
    places = [next((plain.index(name) for name in NAMES[column] if name in plain), None) for column in wanted]
    for column, place in zip(wanted, places, strict=True):
        if place is None:
            found = ", ".join(header)[:200] or "none"
            raise UserError(f"{path}: which column holds the {column}s? Call it {column} (found: {found})")
    return [place for place in places if place is not None]
