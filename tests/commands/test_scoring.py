"""Scores of a finished run against labels, of all images or of some."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sklearn.metrics import adjusted_rand_score

from concurl.cli import main
from concurl.clustering.evaluate import read_labels
from concurl.errors import UserError
from small_run import TINY, fit, refused, rows, told


def test_evaluate_with_own_labels(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(photos) == 0
    table = "path,label\n" + "".join(f"{row['path']},c{row['cluster']}\n" for row in rows("run/assignments.csv"))
    Path("labels.csv").write_text(table)
    printed = told(capsys, "evaluate", "run", "--labels", "labels.csv").out.splitlines()
    codes = next(line for line in printed if line.startswith("These clusters"))
    assert codes.split()[-3:] == ["1.000", "1.000", "1.000"]
    # of so few images chance has some right, even if all have a label
    assert printed[-1].startswith("over all 24 images; labels dealt out by chance would reach an ACC of 0.")


def test_some_labels_give_scores_over_those(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(photos) == 0
    some = rows("run/assignments.csv")[::3]
    Path("labels.csv").write_text("path,label\n" + "".join(f"{row['path']},c{row['cluster']}\n" for row in some))
    printed = told(capsys, "evaluate", "run", "--labels", "labels.csv").out.splitlines()
    assert printed[1].split()[-3:] == ["1.000", "1.000", "1.000"]
    assert printed[-1].startswith(
        "over the 8 of 24 images that have a label; labels dealt out by chance would reach an ACC of"
    )
    assert 0.3 < float(printed[-1].split()[-1]) <= 1
    assert main(["report", "run", "--labels", "labels.csv", "--quiet"]) == 0
    page = Path("run/report.html").read_text()
    assert "16 images have no label and are left out" in page
    assert f">c{some[0]['cluster']}</bdi>" in page


def test_folders_can_be_the_labels(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first folder below the one that holds them all, as in the sets that are published that way."""
    for file in sorted(photos.rglob("*.png")):
        place = photos / "train" / ("cat" if int(file.stem) % 3 else "dog") / ("a" if int(file.stem) % 2 else "b")
        place.mkdir(parents=True, exist_ok=True)
        file.rename(place / file.name)
    assert fit(photos) == 0
    printed = told(capsys, "evaluate", "run", "--labels", "folders", "-o", "scores.json").out
    found = rows("run/assignments.csv")
    assert {row["path"].split("/")[0] for row in found} == {"train"}
    kinds, clusters = [row["path"].split("/")[1] for row in found], [row["cluster"] for row in found]
    scores = json.loads(Path("scores.json").read_text())
    assert scores["codes"]["ari"] == pytest.approx(adjusted_rand_score(kinds, clusters))
    assert f"{scores['codes']['acc']:.3f}" in printed
    assert "over all 24 images" in printed
    assert main(["report", "run", "--labels", "folders", "--quiet"]) == 0
    page = Path("run/report.html").read_text()
    assert ">cat</bdi>" in page
    assert ">dog</bdi>" in page


def test_pictures_outside_of_every_folder_have_no_label() -> None:
    names = ["a/1.png", "b/2.png", "3.png", "b/c/4.png"]
    labels, classes = read_labels(Path("folders"), names)
    assert (labels.tolist(), classes) == ([0, 1, -1, 1], ["a", "b"])


def test_shards_are_no_kinds_but_the_folders_in_them_are() -> None:
    names = ["s-0.tar/a/1.png", "s-0.tar/b/2.png", "s-1.tar/b/3.png", "s-1.tar/4.png"]
    labels, classes = read_labels(Path("folders"), names)
    assert (labels.tolist(), classes) == ([0, 1, 1, -1], ["a", "b"])


def test_an_archive_for_each_kind_is_a_folder_for_each() -> None:
    labels, classes = read_labels(Path("folders"), ["cat.tar/1.png", "dog.tar/1.png", "dog.tar/2.png"])
    assert (labels.tolist(), classes) == ([0, 1, 1], ["cat.tar", "dog.tar"])


def test_folders_beside_that_of_a_list_are_kinds_of_their_own() -> None:
    names = ["cat/1.png", "../sets/dog/2.png", "x/../../owl/3.png", "/data/owl/4.png"]
    labels, classes = read_labels(Path("folders"), names, "/data/lists")
    assert (labels.tolist(), classes) == ([0, 2, 1, 1], ["lists", "owl", "sets"])


def test_which_folders_were_taken_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody but the user knows whether train and val are kinds."""
    caplog.set_level("INFO", "concurl")
    read_labels(Path("folders"), ["val/cat/1.png", "train/cat/2.png"])
    assert "labels: the 2 folders train, val" in caplog.text
    read_labels(Path("folders"), [f"{i:02}/1.png" for i in range(12)])
    assert "labels: the 12 folders 00, 01, 02, 03, 04, 05, 06, 07, 08, 09, ..." in caplog.text


def test_a_folder_that_is_called_folders_is_no_table(photos: Path) -> None:
    for number, file in enumerate(sorted(photos.rglob("*.png"))):
        (photos / "ab"[number % 2]).mkdir(exist_ok=True)
        file.rename(photos / "ab"[number % 2] / file.name)
    assert fit(photos) == 0
    Path("folders").mkdir()
    assert main(["evaluate", "run", "--labels", "folders", "-o", "folders/scores.json"]) == 0
    assert Path("folders/scores.json").exists()


@pytest.mark.parametrize("names", [["1.png", "2.png"], ["a/1.png", "a/2.png"], ["1.png", "a/2.png"]])
def test_one_folder_tells_no_kinds_apart(names: list[str]) -> None:
    with pytest.raises(UserError, match="lie in one folder"):
        read_labels(Path("folders"), names)


def test_a_file_of_that_name_is_read(photos: Path) -> None:
    Path("folders").write_text("path,label\na/1.png,x\n2.png,y\n")
    assert read_labels(Path("folders"), ["a/1.png", "2.png"])[1] == ["x", "y"]


def test_a_benchmark_is_not_scored_by_its_splits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "digits", "--limit", "24", "-k", "3", "-o", "run", *TINY]) == 0
    for verb in ("evaluate", "report"):
        assert "digits has labels of its own" in refused(capsys, verb, "run", "--labels", "folders")
