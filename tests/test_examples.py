"""The examples run as they stand, and what they print is what is in the folder."""

from __future__ import annotations

import csv
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from concurl.cli import main

EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name: str, *arguments: str, cwd: Path) -> str:
    settings = {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        cwd=cwd,
        env=os.environ | settings,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def table(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def drawn_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """own_folder.py with the pictures it draws itself: the run's folder, and what was said."""
    folder = tmp_path_factory.mktemp("drawn")
    said = example("own_folder.py", "-o", "run", "--epochs", "2", cwd=folder)
    return folder / "run", said


def test_own_folder_labels_every_picture_it_drew(drawn_run: tuple[Path, str]) -> None:
    run, said = drawn_run
    rows = table(run / "assignments.csv")
    assert [row["path"] for row in rows] == [f"{i:03d}.png" for i in range(240)]
    assert "240 files" in said
    assert "240 ok" in said
    sizes = np.bincount([int(row["cluster"]) for row in rows], minlength=4)
    assert sizes.min() > 0
    assert f"240 images in 4 clusters of {sizes.min()} to {sizes.max()};" in said
    # Picture i is of kind i % 4: even two epochs on such plain pictures find more than chance (0.25).
    kinds = np.zeros((4, 4), dtype=int)
    np.add.at(kinds, ([int(row["cluster"]) for row in rows], np.arange(240) % 4), 1)
    assert kinds.max(axis=1).sum() / 240 > 0.5
    assert "<html" in (run / "report.html").read_text()[:500]


def test_the_drawn_pictures_stay_for_another_page(drawn_run: tuple[Path, str]) -> None:
    assert main(["report", str(drawn_run[0]), "--quiet"]) == 0


def test_own_folder_takes_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, which has imported torch already; in one of its own it runs for the test above."""
    photos = tmp_path / "photos"
    photos.mkdir()
    rng = np.random.default_rng(0)
    for i in range(16):
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(photos / f"{i}.png")
    (photos / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", "own_folder.py photos -k 2 -o run --epochs 1".split())
    with pytest.raises(SystemExit, match=r"^0$"):
        runpy.run_path(str(EXAMPLES / "own_folder.py"), run_name="__main__")
    assert "16 ok" in capsys.readouterr().out
    assert len(table(tmp_path / "run" / "assignments.csv")) == 16
    assert [row["path"] for row in table(tmp_path / "run" / "skipped.csv")] == ["broken.jpg"]


def test_read_results_says_what_the_folder_holds(drawn_run: tuple[Path, str]) -> None:
    run, _ = drawn_run
    said = example("read_results.py", str(run), cwd=run.parent)
    rows = table(run / "assignments.csv")
    doubtful = min(rows, key=lambda row: (float(row["agreement"]), float(row["confidence"])))
    assert doubtful["path"] in said.partition("to look at first:")[2].splitlines()[0]
    z = np.load(run / "embeddings.npy")
    nearest = rows[int(np.argsort(-(z @ z[0]))[1])]["path"]
    assert nearest in said.partition("most like 000.png:")[2].splitlines()[0]
    for cluster in range(4):
        size = sum(int(row["cluster"]) == cluster for row in rows)
        assert re.search(rf"^\s*{cluster}\s+{size}\s", said, re.MULTILINE)


def test_read_results_without_a_run_says_how_to_make_one(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "read_results.py", "none"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "own_folder.py -o none" in done.stderr


def test_arrays(tmp_path: Path) -> None:
    said = example("arrays.py", "1", cwd=tmp_path)  # its own assertions compare predict, save and load
    sizes = [int(n) for n in re.search(r"clusters: \[(.*)\]", said)[1].split(", ")]
    assert (len(sizes), sum(sizes)) == (10, 1500)
    scores = [float(x) for x in re.findall(r"images:\s+([\d.]+)", said)]
    assert len(scores) == 2
    assert min(scores) > 0.02  # chance is 0, and one epoch is little more
    assert "n_clusters=12" in said


def test_own_encoder_is_the_one_that_is_trained(tmp_path: Path) -> None:
    said = example("own_encoder.py", "1", cwd=tmp_path)  # its own assertion compares save and load
    sizes = [int(n) for n in re.search(r"clusters: \[(.*)\]", said)[1].split(", ")]
    assert (len(sizes), sum(sizes)) == (10, 1797)
    assert "the same labels" in said


def test_minimal_trains_by_the_three_losses(tmp_path: Path) -> None:
    """In a twelfth of its steps the losses fall and the clusters leave chance (0.1) far behind."""
    said = example("minimal.py", "64", cwd=tmp_path)
    l1, l2, l3 = np.array([re.findall(r" ([\d.]+)(?:,|$)", line) for line in said.splitlines()[:-2]], dtype=float).T
    assert 0 < l1[-1] < l1[0] < 8
    assert not l2[:6].any()  # BYOL alone at first
    assert not l3[:6].any()
    assert 0 < l2[-1] < l2[6] < np.log(10)  # below that of uniform assignments
    assert 0 < l3[-1] < l3[6] < np.log(10)
    sizes = [int(n) for n in re.search(r"clusters: \[(.*)\]", said)[1].split(", ")]
    assert (len(sizes), sum(sizes)) == (10, 1797)
    assert min(sizes) > 0
    assert float(re.search(r"ACC (\S+)", said)[1]) > 0.4


def test_minimal_uses_nothing_but_pure_functions() -> None:
    """What it imports from the package is what its docstring calls supported."""
    modules = re.findall(r"^from (concurl\S*) import", (EXAMPLES / "minimal.py").read_text(), re.MULTILINE)
    assert {module.split(".")[1] for module in modules} == {"clustering", "objective"}


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_examples_are_short_and_say_what_they_show(name: str) -> None:
    lines = (EXAMPLES / name).read_text().splitlines()
    assert lines[0].startswith('"""Shows ')
    assert len(lines) < (112 if name == "minimal.py" else 60)  # that one is the whole method
