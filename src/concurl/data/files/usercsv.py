"""A csv that a user wrote, or a spreadsheet: which character divides it, and which columns hold what is wanted."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterator
from pathlib import Path

from concurl.errors import UserError

# What a column may be called, compared without case, spaces, - and _.
NAMES = {
    "path": ("path", "filepath", "imagepath", "file", "filename", "image"),
    "label": ("label", "class"),
}
_UTF16 = tuple(mark.decode(errors="surrogateescape") for mark in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def read_columns(path: str | Path, *wanted: str) -> Iterator[list[str]]:
    """Of each row the fields in the wanted columns, which are keys of NAMES; a field that the row lacks is empty."""
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
            places = _places(path, next(reader, []), wanted)
            for row in reader:
                yield [row[place] if place < len(row) else "" for place in places]
        except csv.Error as error:
            raise UserError(f"{path}, line {reader.line_num}: {error}; is a quote not closed?") from error


def _places(path: str | Path, header: list[str], wanted: tuple[str, ...]) -> list[int]:
    plain = [re.sub(r"[\s_-]", "", column.lower()) for column in header]
    places = [next((plain.index(name) for name in NAMES[column] if name in plain), None) for column in wanted]
    for column, place in zip(wanted, places, strict=True):
        if place is None:
            found = ", ".join(header)[:200] or "none"
            raise UserError(f"{path}: which column holds the {column}s? Call it {column} (found: {found})")
    return [place for place in places if place is not None]
