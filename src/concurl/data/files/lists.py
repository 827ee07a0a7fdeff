"""Text lists and csv files that name images."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator
from pathlib import Path

from concurl.csvfile import read_columns
from concurl.errors import UserError

LIST_SUFFIXES = (".txt", ".lst", ".csv", ".tsv")


def read_paths(path: str) -> Iterator[bytes]:
    """The paths in the file, as they are written there."""
    if path.lower().endswith((".csv", ".tsv")):
        return (os.fsencode(name) for (name,) in read_columns(path, "path") if name)
    return _line_paths(path)


def _line_paths(path: str) -> Iterator[bytes]:
    """One a line; or each ended by NUL, as `find -print0` does it, where names hold line breaks."""
    data = Path(path).read_bytes().removeprefix(codecs.BOM_UTF8)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # as PowerShell writes it
        raise UserError(f"{path}: text in UTF-16; save it in UTF-8")
    lines = data.split(b"\0") if b"\0" in data else [line.rstrip(b"\r") for line in data.split(b"\n")]
    return (line for line in lines if line)
