"""Text lists and csv files that name images."""

from __future__ import annotations

import codecs
import csv
import os
import re
from collections.abc import Iterator
from pathlib import Path

from concurl.errors import UserError

LIST_SUFFIXES = (".txt", ".lst", ".csv", ".tsv")
COLUMNS = ("path", "filepath", "imagepath", "file", "filename", "image")  # compared without spaces, - and _

UTF16 = tuple(mark.decode(errors="surrogateescape") for mark in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def read_paths(path: str) -> Iterator[bytes]:
    """The paths in the file, as they are written there."""
    return _csv_paths(path) if path.lower().endswith((".csv", ".tsv")) else _line_paths(path)


def _line_paths(path: str) -> Iterator[bytes]:
    """One a line; or each ended by NUL, as `find -print0` does it, where names hold line breaks."""
    data = Path(path).read_bytes().removeprefix(codecs.BOM_UTF8)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # as PowerShell writes it
        raise UserError(f"{path}: text in UTF-16; save it in UTF-8")
    lines = data.split(b"\0") if b"\0" in data else [line.rstrip(b"\r") for line in data.split(b"\n")]
    return (line for line in lines if line)


def _csv_paths(path: str) -> Iterator[bytes]:
    with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        first = file.readline()
        if first.startswith(UTF16):
            raise UserError(f"{path}: text in UTF-16; save it as csv in UTF-8")
        file.seek(0)
        delimiter = max("\t,;", key=first.count)  # a tab for a single column, as names hold commas more often
        # In "id, path" the space is no part of the column's name, nor of the paths; elsewhere a name may begin with one.
        reader = csv.reader(file, delimiter=delimiter, skipinitialspace=f"{delimiter} " in first)
        try:
            header = next(reader, [])
            plain = [re.sub(r"[\s_-]", "", column.lower()) for column in header]
            wanted = next((plain.index(column) for column in COLUMNS if column in plain), None)
            if wanted is None:
                found = ", ".join(header)[:200] or "none"
                raise UserError(f"{path}: which column holds the paths? Call it path (found: {found})")
            for row in reader:
                if len(row) > wanted and row[wanted]:
                    yield os.fsencode(row[wanted])
        except csv.Error as error:
            raise UserError(f"{path}, line {reader.line_num}: {error}; save it as plain csv") from error
