"""Scores of a finished run against labels, of all images or of some."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_run import fit, rows

from concurl.cli import main


def test_evaluate_with_own_labels(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(photos) == 0
    table = "path,label\n" + "".join(f"{row['path']},c{row['cluster']}\n" for row in rows("run/assignments.csv"))
    Path("labels.csv").write_text(table)
    capsys.readouterr()
    assert main(["evaluate", "run", "--labels", "labels.csv"]) == 0
    printed = capsys.readouterr().out.splitlines()
    codes = next(line for line in printed if line.startswith("codes"))
    assert codes.split()[1:] == ["1.000", "1.000", "1.000"]
    # of so few images chance has some right, even if all have a label
    assert printed[-1].startswith("over all 24 images; labels dealt out by chance would reach an ACC of 0.")


def test_some_labels_give_scores_over_those(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(photos) == 0
    some = rows("run/assignments.csv")[::3]
    Path("labels.csv").write_text("path,label\n" + "".join(f"{row['path']},c{row['cluster']}\n" for row in some))
    capsys.readouterr()
    assert main(["evaluate", "run", "--labels", "labels.csv"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[1].split() == ["codes", "1.000", "1.000", "1.000"]
    assert printed[-1].startswith(
        "over the 8 of 24 images that have a label; labels dealt out by chance would reach an ACC of"
    )
    assert 0.3 < float(printed[-1].split()[-1]) <= 1
    assert main(["report", "run", "--labels", "labels.csv", "--quiet"]) == 0
    page = Path("run/report.html").read_text()
    assert "16 images have none and are left out" in page
    assert f"<bdi>c{some[0]['cluster']}</bdi>" in page
