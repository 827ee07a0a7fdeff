"""Several processes and several parts from the command line: the outcome is that of one."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from concurl import run
from concurl.cli import main
from concurl.training.checkpoint import checkpoints

OPTIONS = {
    "encoder": "tiny",
    "image-size": 8,
    "preset": "none",
    "batch-size": 8,
    "projector-hidden": 16,
    "projector-dim": 8,
    "cluster-hidden": 16,
    "embedding-dim": 8,
    "projection-dim": 4,
    "n-transforms": 5,
    "monitor-images": 8,
    "device": "cpu",
}
TINY = [*(f"--{name}={value}" for name, value in OPTIONS.items()), "--quiet", "--no-report"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """26 pictures of three colours, with some noise."""
    folder = tmp_path / "photos"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(26):
        pixels = np.zeros((8, 8, 3)) + 200 * np.eye(3)[i % 3] + rng.integers(0, 50, (8, 8, 3))
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i:02d}.png")
    return folder


# ---- parts ----------------------------------------------------------------------------------------------------


def test_predictions_in_parts_are_those_in_one(photos, tmp_path, monkeypatch, capsys):
    assert main(["fit", str(photos), "-k", "3", "-o", "run", *TINY, "--epochs", "1"]) == 0
    monkeypatch.setattr(run, "BLOCK", 7)  # 26 images are then four blocks, the last one short
    assert main(["predict", "run", str(photos), "-o", "whole.csv", "--quiet"]) == 0
    whole = Path("whole.csv").read_bytes()
    with open("whole.csv", newline="") as file:
        assert [row["path"] for row in csv.DictReader(file)] == [f"{i:02d}.png" for i in range(26)]
    for n in (1, 2, 3, 4, 6):  # six parts of four blocks: two are empty
        for i in range(1, n + 1):
            shard = ["predict", "run", str(photos), "-o", f"parts{n}", "--shard", f"{i}/{n}", "--quiet"]
            assert main(shard) == 0
        assert main(["merge", f"parts{n}", "-o", "all.csv"]) == 0
        assert Path("all.csv").read_bytes() == whole
    capsys.readouterr()
    written = Path("parts6/part-2-of-6.csv").stat().st_mtime_ns
    assert main(["predict", "run", str(photos), "-o", "parts6", "--shard", "2/6", "--quiet"]) == 0
    assert "finished before" in capsys.readouterr().out
    assert Path("parts6/part-2-of-6.csv").stat().st_mtime_ns == written
    assert main(["predict", "run", str(photos), "-o", "parts6", "--shard", "7/6", "--quiet"]) == 2


# ---- a sample -------------------------------------------------------------------------------------------------


def test_a_sample_is_trained_on_and_everything_labelled(photos):
    fit = ["fit", str(photos), "-k", "3", *TINY, "--epochs", "2"]
    assert main([*fit, "-o", "some", "--train-images", "17"]) == 0
    assert json.loads(Path("some/metrics.jsonl").read_text().splitlines()[-1])["step"] == 4  # 2 epochs of 17 // 8
    with open("some/assignments.csv", newline="") as file:
        assert [row["path"] for row in csv.DictReader(file)] == [f"{i:02d}.png" for i in range(26)]
    trained = weights("some")
    assert main(["fit", "--resume", "-o", "some", "--quiet", "--no-report"]) == 0  # run.json remembers the sample
    assert weights("some") == trained
    assert main([*fit, "-o", "all", "--train-images", "26"]) == 0
    assert main([*fit, "-o", "plain"]) == 0
    assert weights("all") == weights("plain") != trained
    assert main([*fit, "-o", "one", "--train-images", "1"]) == 2


# ---- processes ------------------------------------------------------------------------------------------------


def torchrun(ranks: int, *arguments: str, restarts: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command += [f"--max-restarts={restarts}", "--monitor-interval=0.1", "-m", "concurl", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finished(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate()
    assert process.returncode == 0, said[-3000:]
    return said


def losses(folder: str) -> list[float]:
    return [json.loads(line)["loss"] for line in Path(folder, "metrics.jsonl").read_text().splitlines()]


def weights(folder: str) -> str:
    return str(json.loads(Path(folder, "model", "model.json").read_text())["sha256"])


def children(process: subprocess.Popen[str]) -> list[int]:
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(pid) for pid in path.read_text().split()]


def killed_at_random(folder: str, command: list[str], *, ranks: int, kills: int, seed: int) -> str:
    """Run under torchrun and kill one rank `kills` times, each time after the run has got on a little."""
    rng = random.Random(seed)
    process = torchrun(ranks, *command, restarts=kills)
    done, before = 0, -1
    try:
        while process.poll() is None and done < kills:
            time.sleep(0.02)
            found = checkpoints(Path(folder, "checkpoints"))
            newest = int(found[-1].name.removeprefix("step-")) if found else -1
            if newest > before and (workers := children(process)):
                time.sleep(rng.random() / 5)
                os.kill(rng.choice(workers), signal.SIGKILL)
                before, done = newest, done + 1
        assert done == kills, process.communicate()[0][-3000:]
        return finished(process)
    finally:
        if process.poll() is None:
            process.kill()


def test_two_processes_do_the_work_of_one_and_survive_a_kill(photos):
    """One process, two, and two of which one is killed: the losses agree, and the kill leaves no trace at all."""
    fit = ["fit", str(photos), "-k", "3", *TINY, "--epochs", "60", "--checkpoint-minutes", "0"]
    assert main([*fit, "-o", "one"]) == 0
    said = finished(torchrun(2, *fit, "-o", "two"))
    assert said.count("26 images in 3 clusters") == 1  # one of them speaks
    # In float32 Adam soon makes differences of roundings; the float64 tests go further (test_distributed.py).
    np.testing.assert_allclose(losses("two")[:5], losses("one")[:5], atol=1e-5)
    assert len(Path("two/assignments.csv").read_text().splitlines()) == 27
    killed_at_random("killed", [*fit, "-o", "killed"], ranks=2, kills=1, seed=0)
    assert weights("killed") == weights("two")
    assert losses("killed") == losses("two")


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(("ranks", "kills"), [(2, 20), (4, 5)])
def test_twenty_kills_leave_no_trace(photos, ranks, kills):
    fit = ["fit", str(photos), "-k", "3", *TINY, "--epochs", "1500", "--checkpoint-minutes", "0"]
    finished(torchrun(ranks, *fit, "-o", "calm"))
    killed_at_random("killed", [*fit, "-o", "killed"], ranks=ranks, kills=kills, seed=ranks)
    assert weights("killed") == weights("calm")
    assert losses("killed") == losses("calm")


def test_a_batch_that_cannot_be_split_ends_in_one_line(photos, monkeypatch, capsys):
    monkeypatch.setattr("concurl.training.distributed.World.join", classmethod(lambda cls: cls(0, 3)))
    monkeypatch.setattr("concurl.training.distributed.World.agree", lambda self, *values: list(values))
    monkeypatch.setattr("concurl.training.distributed.World.check_same", lambda self, *values: None)
    assert main(["fit", str(photos), "-k", "3", "-o", "run", *TINY, "--epochs", "1"]) == 2
    assert "batch_size=8 cannot be split over 3 processes; use --batch-size 9" in capsys.readouterr().err
