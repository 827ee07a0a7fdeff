"""The whole way on real CIFAR-10. Set CONCURL_TEST_DATA to the folder that holds cifar-10-batches-bin to run it."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pytest

from concurl.cli import main

DATA = Path(os.environ.get("CONCURL_TEST_DATA", ""))


@pytest.mark.skipif(not (DATA / "cifar-10-batches-bin").is_dir(), reason="CONCURL_TEST_DATA holds no CIFAR-10")
def test_cifar10_two_epochs_then_predict_and_evaluate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    source = ["cifar10", "--data-dir", str(DATA), "--limit", "2000", "--quiet"]
    assert main(["fit", *source, "-k", "10", "-o", "run", "--epochs", "2", "--no-report"]) == 0
    assert main(["predict", "run", *source, "-o", "again.csv"]) == 0
    assert Path("again.csv").read_bytes() == Path("run/assignments.csv").read_bytes()
    with open("again.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len({row["path"] for row in rows}) == 2000
    capsys.readouterr()
    assert main(["evaluate", "run"]) == 0
    printed = capsys.readouterr().out
    scores = json.loads(Path("run/summary.json").read_text())["scores"]
    for name, score in scores.items():
        line = next(line for line in printed.splitlines() if line.split()[:1] == [name])
        assert float(line.split()[1]) == pytest.approx(score["acc"], abs=6e-4)
    assert scores["codes"]["acc"] > 0.13, "two epochs already do better than chance"
