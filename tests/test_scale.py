"""Several processes and several parts from the command line: the outcome is that of one."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from concurl.cli import main
from concurl.data.batches import sample
from concurl.data.sources import open_source
from concurl.data.storage.feed import make_feed
from concurl.runs import assignments, run
from concurl.training import trainer as training
from kills import SAID, TINY, compare, finished, killed_at_random, losses, make_photos, torchrun, weights


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return make_photos(tmp_path / "photos")


# ---- parts ----------------------------------------------------------------------------------------------------


def test_predictions_in_parts_are_those_in_one(photos, tmp_path, monkeypatch, capsys):
    assert main(["fit", str(photos), "-k", "3", "-o", "run", *TINY, "--epochs", "1"]) == 0
    monkeypatch.setattr(assignments, "BLOCK", 7)  # 26 images are then four blocks, the last one short
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
    assert len(Path("parts4/part-1-of-4.csv").read_text().splitlines()) == 1 + 7  # a whole block
    capsys.readouterr()
    written = Path("parts6/part-2-of-6.csv").stat().st_mtime_ns
    assert main(["predict", "run", str(photos), "-o", "parts6", "--shard", "2/6", "--quiet"]) == 0
    assert "finished before" in capsys.readouterr().out
    assert Path("parts6/part-2-of-6.csv").stat().st_mtime_ns == written
    assert main(["predict", "run", str(photos), "-o", "parts6", "--shard", "7/6", "--quiet"]) == 2


def test_parts_have_the_copies_and_the_files_that_cannot_be_read(photos, tmp_path, monkeypatch, capsys):
    assert main(["fit", str(photos), "-k", "3", "-o", "run", *TINY, "--epochs", "1"]) == 0
    monkeypatch.setattr(assignments, "BLOCK", 7)
    for i in (3, 20):
        (photos / f"{i:02d} copy.png").write_bytes((photos / "07.png").read_bytes())
        (photos / f"{i:02d}.txt").write_text("no image")
    listed = [f"photos/{i:02d}.png" for i in range(25, -1, -1)]
    Path("list.txt").write_text("\n".join([*listed, "photos/03 copy.png", "photos/20.txt", *listed[:3]]))
    for source, n, left_out in (("photos", 30, 2), ("list.txt", 31, 1)):
        capsys.readouterr()
        assert main(["predict", "run", source, "-o", "whole.csv", "--quiet"]) == 0
        said = capsys.readouterr().out
        assert said == f"{n - left_out} images labelled, {left_out} left out: whole.csv\n"
        whole = Path("whole.csv").read_bytes()
        assert len(whole.splitlines()) == 1 + n
        for i in range(1, 7):
            assert main(["predict", "run", source, "-o", f"parts-{source}", "--shard", f"{i}/6", "--quiet"]) == 0
        shares = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert sum(int(words[0]) for words in shares) == n - left_out
        assert [words[5] for words in shares] == ["0"] * 5 + [str(left_out)]  # they stand at the end
        assert main(["merge", f"parts-{source}", "-o", "all.csv"]) == 0
        assert capsys.readouterr().out == said.replace("whole.csv", "all.csv")
        assert Path("all.csv").read_bytes() == whole


CHANGES = {
    "another model": lambda photos: main(
        ["fit", str(photos), "-k", "3", "-o", "run", *TINY, "--epochs", "2", "--overwrite"]
    ),
    "another name for a cluster": lambda photos: Path("run/names.json").write_text('{"0": "red"}'),
    "another picture": lambda photos: (photos / "00.png").rename(photos / "0.png"),
    "another file that cannot be read": lambda photos: (photos / "notes.txt").write_text("no image"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_parts_of_two_works_are_not_joined(photos, change, capsys):
    assert main(["fit", str(photos), "-k", "3", "-o", "run", *TINY, "--epochs", "1"]) == 0
    part = ["predict", "run", str(photos), "-o", "parts", "--quiet", "--shard"]
    assert main([*part, "1/2"]) == main([*part, "2/2"]) == 0
    CHANGES[change](photos)
    assert main([*part, "1/2"]) == 0
    assert main(["merge", "parts", "-o", "all.csv"]) == 2
    assert "comes from another model, source or cut" in capsys.readouterr().err


# ---- a sample -------------------------------------------------------------------------------------------------


def test_a_sample_is_trained_on_and_everything_labelled(photos, monkeypatch, capsys):
    fit = ["fit", str(photos), "-k", "3", *TINY, "--epochs", "2", "--seed", "5"]
    given = []
    with monkeypatch.context() as spied:
        spied.setattr(training, "make_feed", lambda images, device: given.append(images) or make_feed(images, device))
        assert main([*fit, "-o", "some", "--train-images", "17"]) == 0
    assert len(given[0]) == 17
    assert not isinstance(given[0], np.ndarray)  # a million of a hundred million images would be copied into memory
    assert json.loads(Path("some/metrics.jsonl").read_text().splitlines()[-1])["step"] == 4  # 2 epochs of 17 // 8
    with open("some/assignments.csv", newline="") as file:
        assert [row["path"] for row in csv.DictReader(file)] == [f"{i:02d}.png" for i in range(26)]
    chosen = sample(5, 26, 17).numpy()
    model, x = run.model_of(Path("some"), device="cpu"), torch.from_numpy(np.load("some/embeddings.npy"))
    shares = run.assign_embeddings(model, x[chosen]).probabilities.mean(0)
    np.testing.assert_allclose(shares, 1 / 3, atol=1e-4)  # the balance is struck over the images trained on
    trained = weights("some")
    assert main(["fit", "--resume", "-o", "some", "--quiet", "--no-report"]) == 0  # run.json remembers the sample
    assert weights("some") == trained
    assert main([*fit, "-o", "all", "--train-images", "26"]) == 0
    assert main([*fit, "-o", "plain"]) == 0
    assert weights("all") == weights("plain") != trained
    assert main([*fit, "-o", "one", "--train-images", "1"]) == 2
    assert main([*fit, "-o", "few", "--train-images", "17", "-k", "20"]) == 2
    assert "n_clusters=20 is more than the 17 images" in capsys.readouterr().err


def test_the_names_and_labels_in_training_are_those_of_the_sample(monkeypatch):
    seen = []
    train = run.train
    monkeypatch.setattr(run, "judge_of", seen.append)
    monkeypatch.setattr(run, "train", lambda trainer, names, **how: seen.append(names) or train(trainer, names, **how))
    fit = ["fit", "digits", "-k", "3", "-o", "run", *TINY, "--epochs", "1"]
    assert main([*fit, "--limit", "40", "--train-images", "17"]) == 0
    whole, chosen = open_source("digits", limit=40), sample(0, 40, 17).tolist()
    assert seen[0].tolist() == whole.labels[chosen].tolist()
    assert seen[1] == [whole.images.names[i] for i in chosen]


# ---- processes ------------------------------------------------------------------------------------------------


def test_two_processes_do_the_work_of_one_and_survive_a_kill(photos):
    """One process, two, and two of which one is killed: the losses agree, and the kill leaves no trace at all."""
    fit = ["fit", str(photos), "-k", "3", *TINY, "--epochs", "20", "--checkpoint-minutes", "0"]
    fit += ["--checkpoint-epochs", "1"]  # however fast the machine: the kill falls between two of them
    fit += ["--learning-rate", "0.001"]  # at 0.1 training makes more of roundings, by how much depends on the machine
    assert main([*fit, "-o", "one"]) == 0
    said = finished(torchrun(2, *fit, "-o", "two"))
    assert said.count("26 images in 3 clusters") == 1  # one of them speaks
    np.testing.assert_allclose(losses("two"), losses("one"), atol=1e-5)
    assert len(Path("two/assignments.csv").read_text().splitlines()) == 27
    torchrun(2, *fit, "-o", "two").wait()  # is refused by the first, for which the other then waits
    assert "two already holds a run" in SAID.read_text()
    assert "Connection" not in SAID.read_text()  # the other one's last words are one line, and our own
    killed_at_random("killed", [*fit, "-o", "killed"], ranks=2, kills=1, last=60, seed=0)
    assert "Connection" not in SAID.read_text()
    assert weights("killed") == weights("two")
    assert losses("killed") == losses("two")


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("ranks", [2, 4])
def test_twenty_kills_leave_no_trace(photos, ranks):
    steps = compare(photos, ranks=ranks, kills=20, epochs=100)
    assert len(steps) == 20
    print(f"{ranks} ranks, killed after the checkpoints of steps {steps}")


def test_a_batch_that_cannot_be_split_ends_in_one_line(photos, monkeypatch, capsys):
    monkeypatch.setattr("concurl.training.distributed.World.join", classmethod(lambda cls: cls(0, 3)))
    monkeypatch.setattr("concurl.training.distributed.World.agree", lambda self, *values: list(values))
    compared = []
    monkeypatch.setattr("concurl.training.distributed.World.check_same", lambda self, *what: compared.append(what))
    assert main(["fit", str(photos), "-k", "3", "-o", "run", *TINY, "--epochs", "1"]) == 2
    assert "batch_size=8 cannot be split over 3 processes; use --batch-size 6" in capsys.readouterr().err
    ((what, names),) = compared  # before any work: a machine may have other files
    assert (what, list(names)) == ("the images", [f"{i:02d}.png" for i in range(26)])
