"""The same images and the same seed: the same bytes, however the folder is ordered, dated or read."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from user_runs import OPTIONS, photos, results

from concurl.cli import main


def fit(where: Path, source: Path, workers: int) -> dict[str, object]:
    options = ["--workers", str(workers), "--epochs", "3", "--quiet", "--no-report", *OPTIONS]
    assert main(["fit", str(source), "-k", "3", "-o", str(where), *options]) == 0
    found = results(where)
    found["summary.json"].pop("source")  # the folder's name, and the folder is another one
    return found


def test_order_times_and_workers_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = photos(tmp_path / "first")
    dice = random.Random(0)
    found = []
    for turn, workers in enumerate((0, 2, 0)):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"cache-{turn}"))  # or it would not be read again
        folder = tmp_path / f"photos-{turn}"
        folder.mkdir()
        names = sorted(path.name for path in first.iterdir())
        if turn:
            dice.shuffle(names)  # a directory lists its files as they were made, on most file systems
        for name in names:
            shutil.copyfile(first / name, folder / name)
            if turn:
                os.utime(folder / name, (dice.randrange(2**30), dice.randrange(2**30)))
        found.append(fit(tmp_path / f"run-{turn}", folder, workers))
    assert found[1] == found[0]
    assert found[2] == found[0]
