"""A run whose images have moved, or which is used from another folder; pictures that were removed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from concurl.cli import main
from concurl.data.publishers import cifar
from small_run import fit, refused, rows, told


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
    assert json.loads(Path("other/run.json").read_text())["source"] == str(Path("moved").resolve())
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
        "suggest ../other --quiet --up-to 3",
    ):
        assert main(call.split()) == 0, call
    assert Path("../run/assignments.csv").read_bytes() == first
    resume = ["fit", "--resume", "-o", "../run", "--quiet", "--no-report"]
    for name in ("photos", "lists"):
        Path("..", name).rename(name)
    assert main([*resume, "--source", "lists/all.txt"]) == 0, "its paths start from here now"
    about = json.loads(Path("../run/run.json").read_text())
    about |= {"source": str(Path("lists/all.txt").resolve()), "called_in": str(Path("gone").resolve())}
    Path("../run/run.json").write_text(json.dumps(about))
    assert main(resume) == 0


def test_a_run_of_a_list_goes_on_from_elsewhere_if_its_pictures_must_be_decoded_again(
    photos: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Path("all.txt").write_text("".join(f"{path}\n" for path in photos.rglob("*.png")))
    assert fit(Path("all.txt")) == 0
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cold"))
    before = Path("../run/train.log").read_text()
    assert main("fit --resume -o ../run --quiet --no-report".split()) == 0
    assert "read: 24 of 24 files" in Path("../run/train.log").read_text().removeprefix(before)


def test_a_run_of_a_pattern_can_be_used_from_elsewhere(
    photos: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fit(Path("photos/*.png")) == 0
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert main(["report", "../run", "--quiet"]) == 0
    photos.rename(photos.with_name("moved"))
    assert "with --source" in refused(capsys, "report", "../run", "--quiet")
    monkeypatch.setenv("HOME", str(photos.parent))
    for place in ("../moved/*.png", "~/moved/*.png"):
        assert main(["report", "../run", "--quiet", "--source", place]) == 0


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
    new = ["predict", "../run", "cifar10", "-o", "new.csv", "--quiet"]
    assert main(new) == 2
    assert main([*new, "--data-dir", "../moved"]) == 0
    monkeypatch.setenv("CONCURL_DATA", str(tmp_path / "moved"))
    assert main(["report", "../run", "--quiet"]) == 0


def test_pictures_that_were_removed_are_no_part_of_scores_and_folders_and_that_is_said(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(photos) == 0
    known = "".join(f"{row['path']},{row['cluster']}\n" for row in rows("run/assignments.csv"))
    Path("labels.csv").write_text(f"path,label\n{known}")
    (photos / "00.png").unlink()
    changed = told(capsys, "evaluate", "run", "--labels", "labels.csv").err
    assert "1 gone, such as 00.png; the scores are those of the images there now" in changed
    assert main(["export", "run", "--folders", "copy", "-o", "sorted"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("23 images in ")
    assert "1 of the run's 24 images, the first '00.png'; left out" in captured.err
