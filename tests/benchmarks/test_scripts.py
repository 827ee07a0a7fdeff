"""The scripts as they are called: for help, and for a row whose command can be repeated."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import ablations
import record
import reproduce
from concurl.config import Config
from concurl.data.imageset import ImageSet
from concurl.errors import UserError
from plainly import plainly

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CHILD = "startup"  # started by throughput.py alone, which gives it a configuration
SCRIPTS = [path for path in sorted(BENCHMARKS.glob("*.py")) if "__main__" in path.read_text() and path.stem != CHILD]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_help_is_all_that_help_does(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [script.name, "--help"])
    monkeypatch.setattr(Path, "write_text", lambda *arguments: pytest.fail(f"{script.name} --help writes"))
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(script), run_name="__main__")
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: {script.name}")


@pytest.mark.parametrize(
    "call",
    [
        "features.py nowhere",
        "sample.py nowhere -o x.npz",
        "figures.py --tsne nowhere -o x.svg",
        "ablations.py nowhere --table t --date d",
        "ablations.py nowhere --table t --date d --set epochs",
    ],
)
def test_wrong_use_gets_an_answer_of_one_line(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script, *options = call.split()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [script, *options])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(BENCHMARKS / script), run_name="__main__")
    said = capsys.readouterr().err
    assert end.value.code == 2
    assert said.startswith(f"{script}: ")
    assert said.count("\n") == 1


def test_a_script_ends_with_the_code_of_the_concurl_that_it_called(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise subprocess.CalledProcessError(2, "concurl")

    with pytest.raises(SystemExit) as end:
        plainly(fails)
    assert end.value.code == 2


def test_an_ablation_trains_on_the_pictures_that_its_command_would_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("a", "b"):
        (tmp_path / "set" / kind).mkdir(parents=True)
        pixels = np.random.default_rng(ord(kind)).integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "set" / kind / "0.png")
    sizes = []

    def fit(images: ImageSet, config: Config, **_: Any) -> None:
        sizes.append((images.images.shape[2:], config.image_size))
        raise KeyboardInterrupt

    monkeypatch.setattr(ablations.run, "fit", fit)
    options = ["--table", "t", "--date", "d", "--results", str(tmp_path), "--set", "n_clusters=2", "batch_size=2"]
    monkeypatch.setattr(sys, "argv", ["ablations.py", str(tmp_path / "set"), *options, "image_size=16"])
    with pytest.raises(KeyboardInterrupt):
        ablations.main()
    assert sizes == [((16, 16), 16)]


def test_a_row_is_run_again_by_its_own_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "concurl fit digits --recipe digits -k 10 --epochs 1 --no-report --quiet -o 'runs/a run'"
    row = dict.fromkeys(record.COLUMNS, "") | {"name": "short", "minutes": 1, "command": command}
    record.keep(tmp_path, "t", row | {f"codes_{metric}": 0.99 for metric in ("acc", "nmi", "ari")}, b"")
    given = ["reproduce.py", "t", "--results", str(tmp_path), "--folder", str(tmp_path / "again")]
    monkeypatch.setattr(sys, "argv", given)
    assert reproduce.main() == 1  # no such score after one epoch
    said = capsys.readouterr().out
    acc = json.loads((tmp_path / "again/runs/a run/summary.json").read_text())["scores"]["codes"]["acc"]
    assert f"{acc - 0.99:+.3f}" in said
    # Another table may have another run in a folder of that name: it must not be taken for this row's.
    record.keep(tmp_path, "o", row | {"command": command.replace("-k 10", "-k 9")}, b"")
    monkeypatch.setattr(sys, "argv", ["reproduce.py", "o", *given[2:]])
    with pytest.raises(UserError, match="holds the run of another command, concurl fit digits"):
        reproduce.main()
    (tmp_path / "o.csv").unlink()
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("it was finished before"))
    monkeypatch.setattr(sys, "argv", [*given, "--within", "1"])
    assert reproduce.main() == 0
    monkeypatch.setattr(sys, "argv", [*given, "shrot"])
    with pytest.raises(SystemExit):
        reproduce.main()
    assert "no row shrot in t; there are: short" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["reproduce.py", "u", *given[2:]])
    with pytest.raises(SystemExit):
        reproduce.main()
    assert "no table of runs u; there are: t" in capsys.readouterr().err
    (tmp_path / "speeds.csv").write_text("batch,images_per_s\n32,1\n")
    monkeypatch.setattr(sys, "argv", ["reproduce.py", "speeds", *given[2:]])
    with pytest.raises(SystemExit):
        reproduce.main()
    assert "no table of runs speeds; there are: t" in capsys.readouterr().err


def test_a_row_names_the_commit_of_its_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["git", "rev-parse", "--short", "HEAD"]
    ours = subprocess.run(words, cwd=BENCHMARKS, capture_output=True, text=True, check=False).stdout.strip()
    monkeypatch.chdir(tmp_path)
    record.keep(tmp_path, "t", {"name": "elsewhere"}, b"")
    assert record.known(tmp_path, "t")["elsewhere"]["commit"] == ours


def test_a_row_that_cannot_be_run_again_ends_with_its_own_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONCURL_DATA", "sets")  # from the current folder, not from the one where the runs go
    row = dict.fromkeys(record.COLUMNS, "") | {"name": "gone", "minutes": 1, "command": "concurl fit cifar10 -o r"}
    record.keep(tmp_path, "t", row, b"")
    monkeypatch.setattr(sys, "argv", ["reproduce.py", "t", "--results", str(tmp_path), "--folder", "again"])
    assert reproduce.main() == 2
    said = capfd.readouterr().err
    assert f"put it into {tmp_path / 'sets'} " in said
    assert said.endswith("gone: not run again; its command is: concurl fit cifar10 -o r\n")


def test_a_row_of_a_folder_is_scored_by_its_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    for i in range(24):
        place = tmp_path / "again/set" / "ab"[i % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(place / f"{i}.png")
    command = "concurl fit set -k 2 --epochs 1 --encoder tiny --no-report --quiet -o runs/set"
    row = dict.fromkeys(record.COLUMNS, "") | {"name": "short", "minutes": 1, "command": command}
    record.keep(tmp_path, "t", row | {f"codes_{metric}": 0.99 for metric in ("acc", "nmi", "ari")}, b"")
    given = ["reproduce.py", "t", "--results", str(tmp_path), "--folder", str(tmp_path / "again")]
    monkeypatch.setattr(sys, "argv", given)
    assert reproduce.main() == 1  # noise has no kinds
    found = record.row_of(tmp_path / "again/runs/set", "again", "today", "")
    assert f"{found['codes_acc'] - 0.99:+.3f}" in capsys.readouterr().out
    assert (found["data"], 0.5 <= found["codes_acc"] < 0.9) == ("set", True)
