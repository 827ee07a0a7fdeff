"""What a finished run is asked for: labels of images, scores against labels, names of clusters, rows of a table."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from small_run import fit, refused, rows

from concurl.cli import main
from concurl.data import cifar
from trees import tree_hash


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


def test_one_image_is_no_images(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(photos) == 0
    header, first, *_ = Path("run/assignments.csv").read_text().splitlines(keepends=True)
    Path("run/assignments.csv").write_text(header + first)
    Path("one.txt").write_text("photos/00.png\n")
    for call, says in {
        "pack one.txt -o shards --quiet": "1 image packed: shards",
        "predict run one.txt -o parts --shard 1/1 --quiet": "1 of 1 images labelled, 0 left out: parts/",
        "merge parts -o one.csv": "1 image labelled, 0 left out: one.csv",
        "export run --folders copy -o sorted": "1 image in 1 folder: sorted",
    }.items():
        assert main(call.split()) == 0
        assert capsys.readouterr().out.splitlines()[-1].startswith(says)


def test_evaluate_with_own_labels(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(photos) == 0
    table = "path,label\n" + "".join(f"{row['path']},c{row['cluster']}\n" for row in rows("run/assignments.csv"))
    Path("labels.csv").write_text(table)
    capsys.readouterr()
    assert main(["evaluate", "run", "--labels", "labels.csv"]) == 0
    codes = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("codes"))
    assert codes.split()[1:] == ["1.000", "1.000", "1.000"]


def test_some_labels_give_scores_over_those(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(photos) == 0
    some = rows("run/assignments.csv")[::3]
    Path("labels.csv").write_text("path,label\n" + "".join(f"{row['path']},c{row['cluster']}\n" for row in some))
    capsys.readouterr()
    assert main(["evaluate", "run", "--labels", "labels.csv"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[1].split() == ["codes", "1.000", "1.000", "1.000"]
    assert printed[-1].startswith(
        "over the 8 of 24 images that have a label; dealt out by chance, they would reach an ACC"
    )
    assert 0.3 < float(printed[-1].split()[-1]) <= 1
    assert main(["report", "run", "--labels", "labels.csv", "--quiet"]) == 0
    page = Path("run/report.html").read_text()
    assert "16 images have none and are left out" in page
    assert f"<bdi>c{some[0]['cluster']}</bdi>" in page


def test_names_reach_page_and_table(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(photos) == 0
    before = rows("run/assignments.csv")
    Path("run/names.json").write_text(json.dumps({"0": "red, mostly", "2": "=1+1", "7": "nobody"}))
    assert main(["report", "run", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert "the run has the clusters 0 to 2, and no 7" in captured.err
    assert "red, mostly" in Path("run/report.html").read_text()
    names = {"0": "red, mostly", "1": "", "2": "=1+1"}
    assert rows("run/assignments.csv") == [row | {"name": names[row["cluster"]]} for row in before]
    assert main(["predict", "run", str(photos), "-o", "all.csv", "--quiet"]) == 0
    assert Path("all.csv").read_bytes() == Path("run/assignments.csv").read_bytes()
    Path("run/names.json").write_text("{}")  # names are taken back
    assert main(["report", "run", "--quiet"]) == 0
    assert rows("run/assignments.csv") == before


def test_a_page_elsewhere_leaves_the_run_alone(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A colleague's run, say, on a disk that one may only read."""
    assert fit(photos) == 0
    Path("run/names.json").write_text('{"0": "birds"}')
    before = tree_hash(Path("run"))
    assert main(["report", "run", "-o", "page.html", "--quiet"]) == 0
    assert capsys.readouterr().out.endswith("page.html\n")
    assert "birds" in Path("page.html").read_text()
    assert "the images' own folder" in refused(capsys, "report", "run", "-o", f"{photos}/page.html", "--quiet")
    assert "such as run/config.html" in refused(capsys, "report", "run", "-o", "run/config.json", "--quiet")
    assert "such as run/report.html" in refused(capsys, "report", "run", "-o", "run", "--quiet")
    assert tree_hash(Path("run")) == before


def test_where_the_names_are_no_json_is_said(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(photos) == 0
    Path("run/names.json").write_text('{"0": "red",\n "1": "blue",\n}')
    assert '"1": "cars"} is needed (' in (line := refused(capsys, "report", "run", "--quiet"))
    assert ": line " in line
    Path("run/names.json").write_text('["red", "blue"]')
    assert line.partition(" (")[0] == refused(capsys, "report", "run", "--quiet").rstrip()


def test_what_is_damaged_is_made_anew_as_the_message_says(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(photos) == 0
    wanted = Path("run/assignments.csv").read_bytes()
    for name, call in {
        "embeddings.npy": "report run --quiet",
        "assignments.csv": "export run --folders copy -o sorted",
        "model/model.safetensors": "predict run photos -o new.csv --quiet",
    }.items():
        Path("run", name).write_bytes(Path("run", name).read_bytes()[:-20])
        assert "anew with concurl fit --resume" in refused(capsys, *call.split())
        assert main(["fit", "--resume", "-o", "run", "--quiet", "--no-report"]) == 0
        assert main(call.split()) == 0
    assert Path("run/assignments.csv").read_bytes() == wanted


def test_names_of_an_editor_that_marks_its_files(photos: Path) -> None:
    assert fit(photos) == 0
    used = sorted({row["cluster"] for row in rows("run/assignments.csv")})
    names = dict(zip(used, ["red", None, ""], strict=False))  # a run this short may leave a cluster empty
    Path("run/names.json").write_text(json.dumps(names), encoding="utf-8-sig")
    assert main(["report", "run", "--quiet"]) == 0
    assert {row["name"] for row in rows("run/assignments.csv")} == {"red", ""}
    assert main(["export", "run", "--folders", "copy", "-o", "sorted"]) == 0
    folders = {f"{int(used[0]):03d} red", *(f"{int(cluster):03d}" for cluster in used[1:]), "unsure"}
    assert {path.name for path in Path("sorted").iterdir()} <= folders


def test_images_that_moved_are_found_by_their_new_place(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(photos, "--cluster-start", "0.5") == 0
    first = Path("run/assignments.csv").read_bytes()
    known = "".join(f"{row['path']},{row['cluster']}\n" for row in rows("run/assignments.csv"))
    Path("labels.csv").write_text(f"path,label\n{known}")
    about = Path("run/run.json").read_bytes()
    photos.rename("moved")
    for call in (
        "report run --quiet",
        "evaluate run --labels labels.csv",
        "suggest run --quiet --up-to 3",
        "export run --folders symlink -o sorted",
        "export run --model -o model.pt2",
        "fit --resume -o run --quiet --no-report",
        "fit --from run -k 2 -o other --quiet --no-report",
    ):
        assert "with --source" in refused(capsys, *call.split()), call
        assert "did you mean moved?" in refused(capsys, *call.split(), "--source", "move"), call
        assert main([*call.split(), "--source", "moved"]) == 0, call
    assert Path("run/assignments.csv").read_bytes() == first
    assert Path("run/run.json").read_bytes() == about
    for row in rows("run/assignments.csv"):
        (link,) = Path("sorted").rglob(Path(row["path"]).name)
        assert link.resolve() == Path("moved", row["path"]).resolve()
    assert main(["report", "other", "--quiet"]) == 0, "it was begun with the new place"


def test_a_run_of_a_list_can_be_used_from_elsewhere(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its paths may start from the folder that fit was called in, or from its own."""
    Path("lists").mkdir()
    Path("lists/own.png").write_bytes((photos / "00.png").read_bytes())
    listed = [str(path.relative_to(Path.cwd())) for path in sorted(photos.rglob("*.png"))[1:]]
    Path("lists/all.txt").write_text("\n".join(["own.png", *listed]))
    assert fit(Path("lists/all.txt"), "--cluster-start", "0.5") == 0
    first = Path("run/assignments.csv").read_bytes()
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    for call in (
        "report ../run --quiet",
        "suggest ../run --quiet --up-to 3",
        "export ../run --folders symlink -o sorted",
        "fit --resume -o ../run --quiet --no-report",
        "fit --from ../run -k 2 -o ../other --quiet --no-report",
        "report ../other --quiet",
    ):
        assert main(call.split()) == 0, call
    assert Path("../run/assignments.csv").read_bytes() == first


def test_a_run_of_a_pattern_can_be_used_from_elsewhere(
    photos: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fit(Path("photos/*.png")) == 0
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert main(["report", "../run", "--quiet"]) == 0
    photos.rename(photos.with_name("moved"))
    assert "with --source" in refused(capsys, "report", "../run", "--quiet")
    assert main(["report", "../run", "--quiet", "--source", "../moved/*.png"]) == 0


def test_a_run_of_a_benchmark_can_be_used_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = {"test_batch": 4} | {f"data_batch_{i}": 3 for i in range(1, 6)}
    monkeypatch.setattr(cifar, "RECORDS", records)
    place = tmp_path / "data" / "cifar-10-batches-bin"  # where it is looked for by itself
    place.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name, count in records.items():
        pixels = np.hstack([rng.integers(0, 10, (count, 1)), rng.integers(0, 256, (count, 3072))])
        (place / f"{name}.bin").write_bytes(pixels.astype(np.uint8).tobytes())
    assert fit(Path("cifar10")) == 0
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert main(["report", "../run", "--quiet"]) == 0
    (tmp_path / "data").rename(tmp_path / "moved")
    monkeypatch.setenv("CONCURL_DATA", str(tmp_path / "moved"))
    assert main(["report", "../run", "--quiet"]) == 0


def test_other_images_are_not_shown_in_the_place_of_the_runs(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(photos) == 0
    (photos / "00.png").rename(photos / "zz.png")  # as many as before: each would be shown under the next one's label
    says = "not the images of run: 1 gone, such as 00.png and 1 new, such as zz.png; bring those back"
    assert says in refused(capsys, "report", "run", "--quiet")
    photos.rename("moved")
    assert "not the images of run" in refused(capsys, "report", "run", "--quiet", "--source", "moved")
    Path("moved/zz.png").write_bytes(b"damaged")
    assert "images have changed" in refused(capsys, "fit", "--resume", "-o", "run", "--quiet", "--source", "moved")
    assert "--source goes with" in refused(capsys, "fit", "moved", "--source", "moved", "-o", "new")


def test_pictures_that_were_removed_are_no_part_of_scores_and_folders_and_that_is_said(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(photos) == 0
    known = "".join(f"{row['path']},{row['cluster']}\n" for row in rows("run/assignments.csv"))
    Path("labels.csv").write_text(f"path,label\n{known}")
    (photos / "00.png").unlink()
    capsys.readouterr()
    assert main(["evaluate", "run", "--labels", "labels.csv"]) == 0
    assert "1 gone, such as 00.png; the scores are those of the images there now" in capsys.readouterr().err
    assert main(["export", "run", "--folders", "copy", "-o", "sorted"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("23 images in ")
    assert "1 of the run's 24 images, the first '00.png'; left out" in captured.err


@pytest.mark.parametrize("name", ["a\rb.png", "a\nb.png", 'a"b,c.png', "=1+1.png", "\udcff.png", "‮gnp.png"])
def test_any_name_is_one_field_of_one_row(name: str) -> None:
    from concurl.data.csvlines import csv_lines

    text = b"".join(csv_lines([("path", "cluster"), (name, 3), ("z.png", 4)])).decode(errors="surrogateescape")
    assert list(csv.reader(io.StringIO(text, newline=""))) == [["path", "cluster"], [name, "3"], ["z.png", "4"]]
    assert "\r\n" not in text


def test_an_image_that_too_few_members_agree_on_is_unsure() -> None:
    from concurl.assignments import UNSURE, Assignment, assignment_rows

    numbers = {key: [0.5, 0.5] for key in ("confidence", "margin", "outlier")}
    a = SimpleNamespace(labels=[2, 0], agreement=[UNSURE, UNSURE - 0.01], **numbers)
    found = list(assignment_rows(["a.png", "b.png"], cast(Assignment, a), {0: "birds"}))
    assert [row[:3] + row[-1:] for row in found] == [("a.png", 2, "", "ok"), ("b.png", 0, "birds", "unsure")]
