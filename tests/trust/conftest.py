"""One warm interpreter for all of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from runs import Warm


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    server = Warm()
    yield server
    server.close()
