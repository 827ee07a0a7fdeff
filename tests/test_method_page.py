"""docs/method.md quotes the code of each equation: the quotes are the source."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "method.md"


def test_the_quoted_code_is_the_source() -> None:
    before = PAGE.read_text().split("```python\n")
    assert len(before) > 9
    for words, code in pairwise(before):
        file = re.findall(r"\(\.\./(src/[^)]+\.py)\)", words)[-1]  # the one that was named last
        source = [line.strip() for line in (PAGE.parents[1] / file).read_text().splitlines()]
        for line in code.split("```")[0].splitlines():
            assert line.strip() in source, f"{file} does not have: {line}"
