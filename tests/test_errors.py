"""What other libraries say, as a part of a line of ours."""

from __future__ import annotations

import pytest

from concurl.errors import said_by


@pytest.mark.parametrize(
    ("message", "said"), [(" first\nsecond", "first"), ("", "RuntimeError"), ("x" * 300, "x" * 200)]
)
def test_an_error_is_told_by_its_first_line_or_its_kind(message: str, said: str) -> None:
    assert said_by(RuntimeError(message)) == said
