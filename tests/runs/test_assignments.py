"""The rows of assignments.csv."""

from __future__ import annotations

import csv
import io
from types import SimpleNamespace
from typing import cast

import pytest

from concurl.csvfile import csv_lines
from concurl.runs.assignments import UNSURE, Assignment, assignment_rows


@pytest.mark.parametrize("name", ["a\rb.png", "a\nb.png", 'a"b,c.png', "=1+1.png", "\udcff.png", "‮gnp.png"])
def test_any_name_is_one_field_of_one_row(name: str) -> None:
    text = b"".join(csv_lines([("path", "cluster"), (name, 3), ("z.png", 4)])).decode(errors="surrogateescape")
    assert list(csv.reader(io.StringIO(text, newline=""))) == [["path", "cluster"], [name, "3"], ["z.png", "4"]]
    assert "\r\n" not in text


def test_an_image_that_too_few_members_agree_on_is_unsure() -> None:
    numbers = {key: [0.5, 0.5] for key in ("confidence", "margin", "outlier")}
    a = SimpleNamespace(labels=[2, 0], agreement=[UNSURE, UNSURE - 0.01], **numbers)
    found = list(assignment_rows(["a.png", "b.png"], cast(Assignment, a), {0: "birds"}))
    assert [row[:3] + row[-1:] for row in found] == [("a.png", 2, "", "ok"), ("b.png", 0, "birds", "unsure")]
