"""Rows as lines of csv: in one form, whoever writes them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any


def csv_lines(rows: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    """A line for each row, as it comes. A name stays one field, whatever it holds.

    Paths are written as the bytes they are on disk, so a name that is not UTF-8 makes a line that is not: read it with
    errors="surrogateescape" (pandas: encoding_errors="surrogateescape").
    """
    for row in rows:
        line = io.StringIO(newline="")
        csv.writer(line, lineterminator="\r\n").writerow(row)  # told "\n" alone, it would leave a "\r" unquoted
        yield (line.getvalue().removesuffix("\r\n") + "\n").encode(errors="surrogateescape")
