"""Each test has a current folder of its own, and pictures in it when it asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from small_run import make_photos


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CONCURL_DATA", raising=False)
    monkeypatch.setattr(
        "concurl.data.checking.workers.usable_cores", lambda: 1
    )  # one decoder to start; tests/data has several
    return tmp_path


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return make_photos(tmp_path / "photos")
