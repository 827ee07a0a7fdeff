"""One warm interpreter for all of these tests, and a folder of photos to work beside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from user_runs import Warm, photos


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    server = Warm()
    yield server
    server.close()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(
        "concurl.data.checking.workers.usable_cores", lambda: 1
    )  # one decoder to start; tests/data has several
    photos(tmp_path / "photos")
    return tmp_path
