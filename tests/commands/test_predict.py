"""Labels of images by a finished run: those it was trained on, and others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from concurl.cli import main
from small_run import fit, refused, rows, told


def test_predict_on_the_training_images_gives_their_labels_however_they_come(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(photos) == 0
    assert main(["predict", "run", str(photos), "-o", "all.csv", "--quiet"]) == 0
    assert Path("all.csv").read_bytes() == Path("run/assignments.csv").read_bytes()
    label = {row["path"]: row["cluster"] for row in rows("all.csv")}
    for path in sorted(photos.rglob("*.png"))[:5]:
        Path("one.txt").write_text(str(path) + "\n")
        for source in ("one.txt", str(path)):
            assert main(["predict", "run", source, "-o", "one.csv", "--quiet"]) == 0
            assert capsys.readouterr().out.endswith("1 image labelled, 0 left out: one.csv\n")
            (row,) = rows("one.csv")
            assert row["cluster"] == label[path.relative_to(photos).as_posix()]
    assert main(["predict", "run", str(photos), "-o", "some.csv", "--quiet", "--limit", "5"]) == 0
    some = {row["path"]: row["cluster"] for row in rows("some.csv")}
    assert len(some) == 5
    assert some.items() <= label.items()


def test_predict_has_a_row_for_each_given_file(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(photos) == 0
    label = {row["path"]: row["cluster"] for row in rows("run/assignments.csv")}
    (photos / "copy of 04.png").write_bytes((photos / "04.png").read_bytes())
    (photos / "cut.png").write_bytes((photos / "04.png").read_bytes()[:-50])
    (photos / "notes.md").write_text("no image")
    lines = ["photos/08.png", "photos/cut.png", "photos/04.png", "no.png", "photos/08.png", "photos/copy of 04.png"]
    Path("list.txt").write_text("\n".join(lines))
    assert main(["predict", "run", "list.txt", "-o", "list.csv", "--quiet"]) == 0
    assert "4 images labelled, 2 left out: list.csv" in capsys.readouterr().out
    four, eight = label["04.png"], label["08.png"]
    want = [
        ("photos/08.png", eight),
        ("photos/04.png", four),
        ("photos/08.png", eight),
        ("photos/copy of 04.png", four),
    ]
    found = rows("list.csv")
    assert [(row["path"], row["cluster"]) for row in found[:4]] == want
    left_out = [("no.png", "", "unreadable"), ("photos/cut.png", "", "truncated")]
    assert [(row["path"], row["cluster"], row["status"]) for row in found[4:]] == left_out
    assert main(["predict", "run", "photos", "-o", "all.csv", "--quiet"]) == 0
    found = rows("all.csv")
    assert {row["path"]: row["cluster"] for row in found} == label | {
        "copy of 04.png": four,
        "cut.png": "",
        "notes.md": "",
    }
    assert [row["status"] for row in found[25:]] == ["truncated", "not an image"]


def test_labels_by_a_run_that_is_not_healthy_come_with_a_warning(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(photos) == 0
    assert main(["report", "run", "--quiet"]) == 0
    for trouble in (["clustering did not start"], []):
        summary = json.loads(Path("run/summary.json").read_text())
        assert "trouble" in summary  # as the page found it
        Path("run/summary.json").write_text(json.dumps(summary | {"trouble": ", ".join(trouble)}))
        said = told(capsys, "predict", "run", str(photos), "-o", "new.csv", "--quiet").err
        assert ("do not rely on these labels yet (clustering did not start)" in said) is bool(trouble)
    Path("run/summary.json").write_text("{")  # which may have said that it is not healthy
    assert "summary.json: no valid json" in refused(capsys, "predict", "run", str(photos), "-o", "new.csv")


def test_one_image_is_no_images(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(photos) == 0
    header, first, *_ = Path("run/assignments.csv").read_text().splitlines(keepends=True)
    Path("run/assignments.csv").write_text(header + first)
    Path("one.txt").write_text("photos/00.png\n")
    for call, says in {
        "pack one.txt -o shards --quiet": "1 image packed: shards",
        "predict run one.txt -o parts --shard 1/1 --limit 1 --quiet": "1 of 1 images labelled, 0 left out: parts/",
        "merge parts -o one.csv": "1 image labelled, 0 left out: one.csv",
        "export run --folders copy -o sorted": "1 image in 1 folder: sorted",
    }.items():
        assert main(call.split()) == 0
        assert capsys.readouterr().out.splitlines()[-1].startswith(says)
