"""The command line as a user meets it: the whole way on small pictures, and every wrong use."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from concurl.cli import main
from concurl.training.checkpoint import checkpoints

TINY = (
    "--encoder tiny --image-size 16 --preset small --epochs 2 --batch-size 8 --projector-hidden 16 --projector-dim 8 "
    "--cluster-hidden 16 --embedding-dim 8 --projection-dim 4 --n-transforms 5 --queue-size 0 --quiet --no-report"
).split()


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CONCURL_DATA", raising=False)
    return tmp_path


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """24 pictures of three colours, with some noise."""
    folder = tmp_path / "photos"
    (folder / "inner").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i in range(24):
        pixels = np.zeros((16, 16, 3)) + 200 * np.eye(3)[i % 3] + rng.integers(0, 50, (16, 16, 3))
        Image.fromarray(pixels.astype(np.uint8)).save(folder / ("inner" if i % 2 else "") / f"{i:02d}.png")
    return folder


def fit(photos: Path, *more: str) -> int:
    return main(["fit", str(photos), "-k", "3", "-o", "run", *TINY, *more])


def rows(path: Path | str) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def tree_hash(folder: Path) -> str:
    content = [(str(p), p.stat().st_mtime_ns, p.read_bytes()) for p in sorted(folder.rglob("*")) if p.is_file()]
    return hashlib.sha256(repr(content).encode()).hexdigest()


# ---- the whole way --------------------------------------------------------------------------------------------


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
    assert np.load("run/embeddings.npy").shape == (24, 8)
    lines = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [0, 1]
    assert "acc" not in lines[-1], "no labels were given"
    assert tree_hash(photos) == before


def test_none_is_a_preset_where_it_is_one_and_nothing_elsewhere(photos: Path) -> None:
    assert fit(photos, "--preset", "none", "--crop-min", "none") == 0
    config = json.loads(Path("run/config.json").read_text())
    assert config["preset"] == "none"
    assert config["crop_min"] is None


def test_predict_on_the_training_images_gives_their_labels_however_they_come(photos: Path) -> None:
    assert fit(photos) == 0
    assert main(["predict", "run", str(photos), "-o", "all.csv", "--quiet"]) == 0
    assert Path("all.csv").read_bytes() == Path("run/assignments.csv").read_bytes()
    label = {row["path"]: row["cluster"] for row in rows("all.csv")}
    for path in sorted(photos.rglob("*.png"))[:5]:
        Path("one.txt").write_text(str(path) + "\n")
        assert main(["predict", "run", "one.txt", "-o", "one.csv", "--quiet"]) == 0
        (row,) = rows("one.csv")
        assert row["cluster"] == label[path.relative_to(photos).as_posix()]


def test_same_seed_same_bytes_other_seed_other_weights(photos: Path) -> None:
    assert fit(photos) == 0
    first, weights = Path("run/assignments.csv").read_bytes(), Path("run/model/model.safetensors").read_bytes()
    assert fit(photos, "--overwrite") == 0
    assert Path("run/assignments.csv").read_bytes() == first
    assert Path("run/model/model.safetensors").read_bytes() == weights
    assert fit(photos, "--overwrite", "--seed", "1") == 0
    assert Path("run/model/model.safetensors").read_bytes() != weights


@pytest.mark.parametrize("weights", ["1 0 0", "0 1 0", "1 1 0", "1 1 1"])
def test_the_papers_four_settings_run_on_digits(weights: str, capsys: pytest.CaptureFixture[str]) -> None:
    alpha, beta, gamma = weights.split()
    options = ["--alpha", alpha, "--beta", beta, "--gamma", gamma, "--epochs", "1", "--quiet", "--no-report"]
    assert main(["fit", "digits", "--recipe", "digits", "-k", "10", "-o", "run", "--limit", "300", *options]) == 0
    printed = capsys.readouterr().out
    assert "kmeans_v_xi" in printed
    assert ("codes" in printed) == (weights != "1 0 0")
    if weights == "1 0 0":  # BYOL's answer is k-means on v_xi, and it is what the run's labels are
        scores = json.loads(Path("run/summary.json").read_text())["scores"]
        assert main(["evaluate", "run"]) == 0
        assert f"{scores['kmeans_v_xi']['acc']:.3f}" in capsys.readouterr().out


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
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(photos, "--checkpoint-minutes", "0") == 0
    wanted = Path("run/assignments.csv").read_bytes()
    newest = checkpoints(Path("run/checkpoints"))[-1]
    state = bytearray((newest / "state.safetensors").read_bytes())
    state[len(state) // 2] ^= 1
    (newest / "state.safetensors").write_bytes(state)
    assert main(["fit", "--resume", "-o", "run", "--quiet", "--no-report"]) == 0
    assert newest.name in capsys.readouterr().err
    assert Path("run/assignments.csv").read_bytes() == wanted


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
    assert printed[-1] == "over the 8 of 24 images that have a label"
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


# ---- wrong use ------------------------------------------------------------------------------------------------


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one line that answers wrong use; exit code 2."""
    capsys.readouterr()
    try:
        code = main(list(argv))
    except SystemExit as exit:  # argparse leaves this way
        code = int(exit.code or 0)
    captured = capsys.readouterr()
    assert code == 2
    assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    assert "Traceback" not in captured.err
    return captured.err


def test_wrong_words_get_the_right_one(capsys: pytest.CaptureFixture[str], photos: Path) -> None:
    assert "did you mean fit?" in refused(capsys, "fitt", "x")
    assert "did you mean --epochs?" in refused(capsys, "fit", str(photos), "-o", "run", "--epoch", "3")
    assert "did you mean modern?" in refused(capsys, "fit", str(photos), "-o", "run", "--recipe", "modren")
    assert "did you mean cifar10?" in refused(capsys, "fit", "cifar1", "-o", "run")
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["-k", "1"], "n_clusters=1"),
        (["-k", "25"], "n_clusters=25 is more than the 24 images"),
        (["--batch-size", "25"], "batch_size=25 is larger than the set of 24 images"),
        (["--epochs", "many"], "many"),
        (["--epochs", "0"], "epochs=0"),
        (["--tau", "0"], "tau=0"),
        (["--encoder", "vit"], "resnet18"),
        (["--device", "tpu"], "tpu"),
        (["--projection-dim", "9"], "projection_dim=9"),
        (["--limit", "1"], "limit"),
    ],
)
def test_wrong_values_are_named(
    capsys: pytest.CaptureFixture[str], photos: Path, options: list[str], says: str
) -> None:
    line = refused(capsys, "fit", str(photos), "-k", "3", "-o", "run", *TINY, *options)
    assert says in line
    assert not Path("run").exists()


def test_no_images(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no images" in refused(capsys, "fit", str(empty), "-k", "3", "-o", "run", "--quiet")
    (empty / "a.txt").write_text("x")
    (empty / "b.txt").write_text("y")
    assert "2 .txt" in refused(capsys, "fit", str(empty), "-k", "3", "-o", "run", "--quiet")
    assert "nowhere" in refused(capsys, "fit", "nowhere", "-k", "3", "-o", "run", "--quiet")
    line = refused(capsys, "fit", "cifar10", "-k", "10", "-o", "run", "--quiet")
    assert "cifar-10-binary.tar.gz" in line
    assert not Path("run").exists()


def test_a_folder_that_holds_a_run_is_kept(capsys: pytest.CaptureFixture[str], photos: Path) -> None:
    assert fit(photos) == 0
    before = tree_hash(Path("run"))
    line = refused(capsys, "fit", str(photos), "-k", "3", "-o", "run", *TINY)
    assert "--overwrite" in line
    assert "--resume" in line
    assert "only -o" in refused(capsys, "fit", "--resume", "-o", "run", "--epochs", "9", "--quiet")
    assert "only -o" in refused(capsys, "fit", "--resume", "-o", "run", "--recipe", "digits", "--quiet")
    assert "no run to resume" in refused(capsys, "fit", "--resume", "-o", "elsewhere", "--quiet")
    assert not Path("elsewhere").exists()
    config = json.loads(Path("run/config.json").read_text())
    Path("run/config.json").write_text(json.dumps(config | {"epochs": 9}))
    assert "another configuration" in refused(capsys, "fit", "--resume", "-o", "run", "--quiet")
    Path("run/config.json").write_text(json.dumps(config, indent=2) + "\n")
    assert tree_hash(Path("run")) != ""
    assert len(before) == 64


def test_wrong_labels_and_models(capsys: pytest.CaptureFixture[str], photos: Path) -> None:
    assert fit(photos) == 0
    Path("labels.csv").write_text("path,label\nother.png,1\n")
    assert "none of its 1 paths" in refused(capsys, "evaluate", "run", "--labels", "labels.csv")
    Path("labels.csv").write_text("file\nx\n")
    assert "path and label" in refused(capsys, "evaluate", "run", "--labels", "labels.csv")
    assert "--labels" in refused(capsys, "evaluate", "run")
    assert "no model here" in refused(capsys, "predict", str(photos), str(photos), "-o", "x.csv", "--quiet")
    assert "no config.json" in refused(capsys, "evaluate", str(photos))
    assert not Path("x.csv").exists()


WRONG = [
    ("", "no output folder; add -o DIR, as in: concurl fit PHOTOS"),
    ("photos -o x -k", "-k: a value is missing"),
    ("photos -o x -k three", "'three': a whole number is needed"),
    ("photos -o x -K 3", "did you mean -k?"),
    ("photos more -o x", "one source, please, and more is another"),
    ("photos -o a.txt", "a.txt is a file"),
    ("photos -o photos", "nothing is written into photos"),
    ("photos -o photos/inner/run", "nothing is written into photos"),
    ("photos -o x --workers -2", "--workers -2: 0 "),
    ("photos -o x --recipe", "unknown recipe ''"),
]


@pytest.mark.parametrize(("rest", "says"), WRONG, ids=[rest for rest, _ in WRONG])
def test_wrong_calls_of_fit(capsys: pytest.CaptureFixture[str], photos: Path, rest: str, says: str) -> None:
    Path("a.txt").write_text("x")
    before = tree_hash(Path())
    assert says in refused(capsys, "fit", *rest.split())
    assert tree_hash(Path()) == before


def test_wrong_calls_of_the_others(capsys: pytest.CaptureFixture[str], photos: Path) -> None:
    assert fit(photos) == 0
    Path("a.txt").write_text("x")
    Path("empty").mkdir()
    Path("half").mkdir()  # what a run leaves that was stopped
    for name in ("config.json", "run.json"):
        Path("half", name).write_bytes(Path("run", name).read_bytes())
    unfinished = "half: the run is not finished; go on with concurl fit --resume -o half"
    before = tree_hash(photos), tree_hash(Path("run"))
    for call, says in {
        "photos": "did you mean concurl fit photos -k 10 -o runs/photos?",
        "train photos": "did you mean fit?",
        "--epochs 3": "the verb comes first",
        "predict run": "source missing, as in: concurl predict runs/photos NEW -o new.csv",
        "predict photos run -o n.csv": "the run comes first: concurl predict run photos -o n.csv",
        "predict rum photos -o n.csv": "rum: no such file or folder; did you mean run?",
        "predict half photos -o n.csv": unfinished,
        "report half": unfinished,
        "evaluate half": unfinished,
        "export half --folders copy -o x": unfinished,
        "report rum": "did you mean run?",
        "evaluate rum": "did you mean run?",
        "export rum --folders copy -o x": "did you mean run?",
        "predict run photos -o run": "run is a folder; name a file with -o, such as run/new.csv",
        "predict run photos -o no/n.csv": "no: no such folder",
        "predict run photos -o n.csv --limit 0": "--limit 0: at least 1",
        "predict run photos -o a.txt --shard 1/2": "a.txt is a file",
        "merge empty -o run": "run is a folder",
        "report": "run missing, as in: concurl report runs/photos",
        "export run -o x": "say what to export",
        "export run --folders copy -o photos/x": "nothing is written into",
        "export run --folders copy -o x --names no.json": "no.json: cannot be read (No such file",
        "export run --model -o photos": "photos is a folder",
        "export run --model -o x --names a.txt": "--names goes with --folders",
        "audit empty": "no files in empty",
        "audit photos --workers -2": "--workers -2: 0 ",
        "audit photos -o photos": "photos is a folder",
        "pack empty -o s": "no files in empty",
        "pack photos -o a.txt": "a.txt is a file",
        "evaluate run --labels no.csv": "no.csv: cannot be read as a csv (No such file",
        "demo -o a.txt": "a.txt is a file",
    }.items():
        assert says in refused(capsys, *call.split()), call
    assert (tree_hash(photos), tree_hash(Path("run"))) == before


def test_no_permission_is_said_before_any_work(
    capsys: pytest.CaptureFixture[str], photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fit(photos) == 0
    Path("locked").mkdir()
    access = os.access  # root may write anywhere: the answer is made up, for this folder and for the run's
    closed = {Path("locked").resolve(), Path("run").resolve()}
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).resolve() not in closed and access(path, mode))
    before = tree_hash(Path())
    for call in (
        f"fit photos -k 3 -o locked/run {' '.join(TINY)}",
        "predict run photos -o locked/n.csv",
        "audit photos -o locked/n.csv",
        "export run --folders copy -o locked/x",
        "export run --model -o locked/x.pt2",
        "pack photos -o locked",
        "demo -o locked/demo",
        "report run",
    ):
        assert "Permission denied; choose a folder that can be written to" in refused(capsys, *call.split()), call
    assert tree_hash(Path()) == before

    def denied(path: bytes) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", denied)
    assert "/photos/: Permission denied; see who may read" in refused(capsys, "audit", "photos")


def test_a_handful_of_images_is_told_what_to_expect(capsys: pytest.CaptureFixture[str], photos: Path) -> None:
    assert fit(photos) == 0
    assert "24 images for 3 clusters are few" in capsys.readouterr().err


def test_a_terminal_shows_one_bar_for_each_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    from concurl.commands.talk import reader_progress, speak

    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    speak(quiet=False)
    show = reader_progress()
    for done in range(1, 31):
        show("audit", done, 30)
    for done in range(1, 751):
        show("map", done, 750)
    shown = terminal.getvalue()
    assert shown.count("\n") == 2
    assert "30/30" in shown
    assert re.search(r"750/750 .* steps/s", shown)


def test_two_runs_in_one_folder(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from concurl.runfolder import run_folder

    with run_folder(Path("run"), resume=False, overwrite=False):
        assert "another process" in refused(capsys, "fit", str(photos), "-k", "3", "-o", "run", *TINY)


def test_help_answers_at_once_and_tells_everything() -> None:
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}
    times = []
    for _ in range(3):
        begun = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "concurl", "fit", "--help"], capture_output=True, text=True, env=environment
        )
        times.append(time.monotonic() - begun)
    assert done.returncode == 0
    assert min(times) < 1.0
    from dataclasses import fields

    from concurl.config import Config

    text = " ".join(done.stdout.split())
    for field in fields(Config):
        assert f"--{field.name.replace('_', '-')}" in text
    for symbol in (
        "[K]",
        "[M]",
        "[B]",
        "[tau]",
        "[tau_B]",
        "[epsilon]",
        "[alpha]",
        "[beta]",
        "[gamma]",
        "[A]",
        "[C]",
        "[d]",
    ):
        assert symbol in text
    assert text.count("(default:") >= len(fields(Config))
    check = "import sys, concurl.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0, "the command line imports torch too early"


@pytest.mark.parametrize("name", ["a\rb.png", "a\nb.png", 'a"b,c.png', "=1+1.png", "\udcff.png", "‮gnp.png"])
def test_any_name_is_one_field_of_one_row(name: str) -> None:
    from concurl.runfolder import csv_text

    text = csv_text(("path", "cluster"), [(name, 3), ("z.png", 4)])
    assert list(csv.reader(io.StringIO(text, newline=""))) == [["path", "cluster"], [name, "3"], ["z.png", "4"]]
    assert "\r\n" not in text


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
