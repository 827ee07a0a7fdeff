"""`concurl fit` as a user meets it: the run it leaves, the same for the same seed and however often it was stopped."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from concurl.cli import main
from concurl.data.publishers import stl
from concurl.runs import run
from concurl.training.checkpoint import checkpoints
from small_run import TINY, fit, refused, rows
from trees import tree_hash


def test_fit_leaves_a_complete_run_and_touches_no_input(photos: Path) -> None:
    before = tree_hash(photos)
    assert fit(photos) == 0
    names = sorted(p.relative_to(photos).as_posix() for p in photos.rglob("*.png"))
    found = rows("run/assignments.csv")
    assert [row["path"] for row in found] == names
    assert list(found[0]) == ["path", "cluster", "name", "confidence", "margin", "agreement", "outlier", "status"]
    assert {int(row["cluster"]) for row in found} <= {0, 1, 2}
    for key in ("confidence", "margin", "agreement", "outlier"):
        assert all(0 <= float(row[key]) <= 1 for row in found)
    summary = json.loads(Path("run/summary.json").read_text())
    assert sum(summary["sizes"]) == summary["n_images"] == 24
    assert summary["scores"] is None
    assert summary["source"] == str(photos)
    assert len(Path("run/summary.json").read_text().splitlines()) == len(summary) + 2, "a line for each value"
    assert np.load("run/embeddings.npy").shape == (24, 8)
    lines = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [0, 1]
    assert "acc" not in lines[-1], "no labels were given"
    assert tree_hash(photos) == before


def test_the_command_that_is_kept_can_be_pasted(photos: Path) -> None:
    """Whoever called, a shell or a program, and whatever the folder is called."""
    assert fit(photos.rename("my photos")) == 0
    kept = json.loads(Path("run/environment.json").read_text())
    assert shlex.split(kept["command"])[:6] == ["concurl", "fit", "my photos", "-k", "3", "-o"]
    assert kept["device"] != "auto"  # it says what that was


def test_the_settings_of_a_run_are_taken_from_its_config(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(photos, "--tau", "0.2") == 0
    again = ["fit", str(photos), "--recipe", "run/config.json", "--quiet", "--no-report"]
    assert main([*again, "-o", "same"]) == 0
    assert Path("same/model/model.safetensors").read_bytes() == Path("run/model/model.safetensors").read_bytes()
    assert main([*again, "-o", "other", "--seed", "1"]) == 0
    one, other = (json.loads(Path(run, "config.json").read_text()) for run in ("run", "other"))
    assert other == one | {"seed": 1}
    Path("no.json").write_text('{"epochs": 3,}')
    says = "no.json: cannot be read as a configuration (Expecting property name"
    assert says in refused(capsys, *again, "-o", "x", "--recipe", "no.json")
    says = "run/confg.json: no such file or folder; did you mean run/config.json?"
    assert says in refused(capsys, *again, "-o", "x", "--recipe", "run/confg.json")
    Path("run").rename("elsewhere")
    assert main(["report", "other", "--quiet"]) == 0


def test_none_is_a_preset_where_it_is_one_and_nothing_elsewhere_and_no_switches_off(photos: Path) -> None:
    assert fit(photos, "--preset", "none", "--crop-min", "None", "--no-reproducible") == 0
    config = json.loads(Path("run/config.json").read_text())
    assert config["preset"] == "none"
    assert config["crop_min"] is None
    assert config["reproducible"] is False


def test_same_seed_same_bytes_other_seed_other_weights(photos: Path) -> None:
    assert fit(photos) == 0
    first, weights = Path("run/assignments.csv").read_bytes(), Path("run/model/model.safetensors").read_bytes()
    assert fit(photos, "--overwrite") == 0
    assert Path("run/assignments.csv").read_bytes() == first
    assert Path("run/model/model.safetensors").read_bytes() == weights
    assert fit(photos, "--overwrite", "--seed", "1") == 0
    assert Path("run/model/model.safetensors").read_bytes() != weights


def test_views_apart_are_another_training(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(photos) == 0
    together = Path("run/model/model.safetensors").read_bytes()
    assert fit(photos, "--overwrite", "--batch-norm", "apart") == 0
    assert json.loads(Path("run/config.json").read_text())["batch_norm"] == "apart"
    assert Path("run/model/model.safetensors").read_bytes() != together
    assert "joint, apart" in refused(capsys, "fit", str(photos), "-k", "3", "-o", "x", "--batch-norm", "each")


def test_without_labels_nothing_is_embedded_for_scores(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embeddings, branches = run.embeddings, []
    monkeypatch.setattr(run, "embeddings", lambda *a, **how: branches.append(how["branches"]) or embeddings(*a, **how))
    assert fit(photos) == main(["fit", "digits", "-k", "3", "-o", "other", "--limit", "30", *TINY]) == 0
    assert branches == [(), run.SCORED]


@pytest.mark.parametrize("weights", ["1 0 0", "0 1 0", "1 1 0", "1 1 1"])
def test_the_papers_four_settings_run_on_digits(weights: str, capsys: pytest.CaptureFixture[str]) -> None:
    alpha, beta, gamma = weights.split()
    options = ["--alpha", alpha, "--beta", beta, "--gamma", gamma, "--epochs", "1", "--quiet", "--no-report"]
    assert main(["fit", "digits", "--recipe", "digits", "-k", "10", "-o", "run", "--limit", "300", *options]) == 0
    printed = capsys.readouterr().out
    assert "k-means on the target's projections" in printed
    assert ("These clusters (codes)" in printed) == (weights != "1 0 0")
    if weights == "1 0 0":  # BYOL's answer is k-means on v_xi, and it is what the run's labels are
        scores = json.loads(Path("run/summary.json").read_text())["scores"]
        assert main(["evaluate", "run"]) == 0
        assert f"{scores['kmeans_v_xi']['acc']:.3f}" in capsys.readouterr().out


def test_no_workers_are_no_process_but_this_one(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("concurl.data.checking.workers._Worker", lambda *_: pytest.fail("a process was started"))
    assert fit(photos, "--image-size", "none", "--workers", "0") == 0
    shutil.rmtree("cache")  # or nothing would be decoded again
    assert main(["fit", "--resume", "-o", "run", "--quiet", "--no-report", "--workers", "0"]) == 0


# ---- resume ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stop", [3, 5, 6, 8]
)  # of nine steps: at the end of an epoch and within, before and after clustering
def test_a_stopped_run_resumes_to_the_same_bytes(photos: Path, monkeypatch: pytest.MonkeyPatch, stop: int) -> None:
    from concurl.training.trainer import Trainer

    more = ["--epochs", "3", "--queue-size", "8", "--codes-from", "target", "--checkpoint-minutes", "0"]
    assert fit(photos, *more) == 0
    whole = {n: Path("run", n).read_bytes() for n in ("assignments.csv", "model/model.safetensors")}
    curve = [json.loads(line)["loss"] for line in Path("run/metrics.jsonl").read_text().splitlines()]

    steps = {"taken": 0}
    save = Trainer.save

    def stop_in_the_middle(self: Trainer, *kind: str) -> None:
        save(self, *kind)
        steps["taken"] += 1
        if steps["taken"] == stop:
            raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "save", stop_in_the_middle)
    assert fit(photos, "--overwrite", *more) == 130
    assert not Path("run/assignments.csv").exists()
    monkeypatch.setattr(Trainer, "save", save)
    assert main(["fit", "--resume", "-o", "run", "--quiet", "--no-report"]) == 0
    assert {n: Path("run", n).read_bytes() for n in whole} == whole
    assert [json.loads(line)["loss"] for line in Path("run/metrics.jsonl").read_text().splitlines()] == curve


def test_the_newest_checkpoint_damaged_the_one_before_is_taken(
    photos: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as slow:
        slow.setattr("concurl.training.trainer.Trainer._minutes", lambda _: 90.0)
        assert fit(photos, "--checkpoint-minutes", "0") == 0
    wanted = Path("run/assignments.csv").read_bytes()
    newest = checkpoints(Path("run/checkpoints"))[-1]
    state = bytearray((newest / "state.safetensors").read_bytes())
    state[len(state) // 2] ^= 1
    (newest / "state.safetensors").write_bytes(state)
    assert main(["fit", "--resume", "-o", "run", "--quiet", "--no-report"]) == 0
    assert newest.name in capsys.readouterr().err
    assert Path("run/assignments.csv").read_bytes() == wanted
    assert json.loads(Path("run/summary.json").read_text())["minutes"] >= 90, "of both times together"


def test_large_photos_on_a_cpu_keep_their_labels_and_their_resume(tmp_path: Path) -> None:
    """The working size is chosen while reading: predict, evaluate and resume must come to the same one."""
    rng = np.random.default_rng(0)
    (tmp_path / "large").mkdir()
    for i in range(16):
        pixels = rng.integers(0, 256, (20, 30, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
        Image.fromarray(pixels).save(tmp_path / "large" / f"{i}.png")
    options = (
        "--device cpu --epochs 1 --encoder tiny --batch-size 8 --projector-hidden 16 --queue-size 0 --n-transforms 5"
    )
    assert main(["fit", "large", "-k", "2", "-o", "run", *options.split(), "--quiet", "--no-report"]) == 0
    config = json.loads(Path("run/config.json").read_text())
    assert (config["image_size"], config["cluster_hidden"]) == (64, 16)
    assert any(line.startswith("image_size = 64") for line in json.loads(Path("run/run.json").read_text())["chosen"])
    first = Path("run/assignments.csv").read_bytes()
    assert main(["predict", "run", "large", "-o", "again.csv", "--quiet"]) == 0
    assert Path("again.csv").read_bytes() == first
    assert main(["fit", "--resume", "-o", "run", "--quiet", "--no-report"]) == 0
    assert Path("run/assignments.csv").read_bytes() == first


def test_ctrl_c_while_labelling_says_how_to_go_on(
    photos: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("concurl.runs.run.embeddings", interrupted)
        assert fit(photos) == 130
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "go on with: " in line]
    assert main([*shlex.split(line.partition("go on with: concurl ")[2]), "--no-report"]) == 0  # pasted
    assert len(rows("run/assignments.csv")) == 24


def test_names_that_cannot_be_read_are_told_before_the_training(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("run").mkdir()
    Path("run/names.json").write_text('{"0": "a",}')
    assert fit(photos) == 2
    assert "run/names.json: an object like" in capsys.readouterr().err
    assert not Path("run/metrics.jsonl").exists()


def test_ctrl_c_at_the_page_says_that_only_the_page_is_missing(
    photos: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with_page = [word for word in TINY if word != "--no-report"]
    with monkeypatch.context() as patch:
        patch.setattr("concurl.report.write_report", interrupted)
        assert main(["fit", str(photos), "-k", "3", "-o", "my run", *with_page]) == 130
    assert len(rows("my run/assignments.csv")) == 24
    said = capsys.readouterr().err
    (line,) = [line for line in said.splitlines() if line.startswith("the run is finished but for its page")]
    assert main(shlex.split(line.partition("concurl ")[2])) == 0  # pasted as it stands
    assert Path("my run/report.html").exists()


def test_the_last_word_tells_how_many_are_unsure_and_the_page_to_open(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(photos) == 0
    unsure = sum(row["status"] == "unsure" for row in rows("run/assignments.csv"))
    assert capsys.readouterr().out.endswith(f"; {unsure} unsure: run\n")  # there is no page
    assert main(["fit", "--resume", "-o", "run", "--quiet"]) == 0
    assert capsys.readouterr().out.endswith(": run/report.html\n")
    assert fit(photos, "-k", "7", "--overwrite") == 0
    unsure = sum(row["status"] == "unsure" for row in rows("run/assignments.csv"))
    sizes = np.bincount([int(row["cluster"]) for row in rows("run/assignments.csv")], minlength=7)
    said = rf"^24 images in 7 clusters of {sizes.min()} to {sizes.max()}; {unsure} unsure: run$"
    assert re.search(said, capsys.readouterr().out, re.MULTILINE)


def test_what_to_go_on_with_can_be_pasted(
    photos: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from concurl.training.trainer import Trainer

    save = Trainer.save

    def interrupted(self: Trainer, *kind: str) -> None:
        if self.step == 1:  # as from the keyboard: the step that comes next is the last
            signal.raise_signal(signal.SIGINT)
        save(self, *kind)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "save", interrupted)
        assert main(["fit", str(photos), "-k", "3", "-o", "my run", *TINY, "--checkpoint-minutes", "0"]) == 130
    stopped = capsys.readouterr().err.strip()
    assert "go on with: concurl fit" in stopped
    assert main(["report", "my run"]) == 2
    unfinished = capsys.readouterr().err.strip()
    pasted = {line.partition("concurl fit")[2] for line in (stopped, unfinished)}
    (rest,) = pasted
    assert main(["fit", *shlex.split(rest), "--quiet", "--no-report"]) == 0


def test_scores_say_how_many_images_have_a_label(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """STL-10 with its unlabelled images, from files of the publisher's form with few of them; and its page."""
    monkeypatch.setattr(stl, "RECORDS", {"train": 12, "test": 8, "unlabeled": 12})
    folder, dice = tmp_path / "stl10_binary", np.random.default_rng(0)
    folder.mkdir()
    for split, n in stl.RECORDS.items():
        (folder / f"{split}_X.bin").write_bytes(dice.bytes(n * 3 * 96 * 96))
        (folder / f"{split}_y.bin").write_bytes(bytes(1 + i % 10 for i in range(n)))
    assert main(["fit", "stl10-unlabelled", "--data-dir", str(tmp_path), "-k", "3", "-o", "run", *TINY]) == 0
    assert "over the 20 of 32 images that have a label" in capsys.readouterr().out
    assert "0 files" not in Path("run/train.log").read_text()  # the publisher's three are none of ours
    assert main(["report", "run", "--quiet"]) == 0
    assert "airplane" in Path("run/report.html").read_text()
