"""Each test has a current folder of its own, and pictures in it when it asks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image


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
    """24 pictures of three colours, with some noise."""
    folder = tmp_path / "photos"
    (folder / "inner").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i in range(24):
        pixels = np.zeros((16, 16, 3)) + 200 * np.eye(3)[i % 3] + rng.integers(0, 50, (16, 16, 3))
        Image.fromarray(pixels.astype(np.uint8)).save(folder / ("inner" if i % 2 else "") / f"{i:02d}.png")
    return folder
