"""`fit --from RUN`: the run that clusters RUN's features anew is, to the byte, the one trained so from its first step."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from concurl.cli import main
from concurl.config import LATE
from small_run import TINY, make_photos

SLOWER = [*TINY, *"--epochs 4 --queue-size 16 --cluster-start 0.6 --cluster-lr 0.5 --schedule cosine".split()]
QUIET = ["--quiet", "--no-report"]
RESULTS = ("assignments.csv", "embeddings.npy", "model/model.safetensors", "config.json", "metrics.jsonl")
OTHERS = {
    "more clusters": ["-k", "5", "--projection-dim", "3"],
    "another ensemble": ["--n-transforms", "3", "--transforms", "diagonal"],
    "other losses": ["--gamma", "0", "--beta", "1"],
    "another start": ["-k", "4", "--prototype-init", "random", "--head-init", "random", "--queue-size", "0"],
    "a gentler course": ["--cluster-lr", "0.1", "--cluster-ramp", "0.3", "--min-sureness", "0.6"],
    "other codes": "--codes-from online --tau 0.2 --epsilon 0.1 --sinkhorn-iterations 5 --balance 0.5".split(),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 pictures, and a run with three clusters; 12 steps of which the last 5 cluster, in the middle of an epoch."""
    folder = tmp_path_factory.mktemp("other-clusters")
    photos = make_photos(folder / "photos", 30)
    assert main(["fit", str(photos), "-k", "3", "-o", str(folder / "origin"), *SLOWER]) == 0
    return folder


@pytest.fixture(autouse=True)
def there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


def branch(name: str, *options: str) -> Path:
    assert main(["fit", "--from", "origin", "-o", name, *options, *QUIET]) == 0
    return Path(name)


def content(run: Path) -> dict[str, object]:
    found: dict[str, object] = {name: (run / name).read_bytes() for name in RESULTS}
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    clocks = ("minutes", "images_per_second")
    return found | {"metrics.jsonl": [{k: v for k, v in line.items() if k not in clocks} for line in lines]}


@pytest.mark.parametrize("kind", OTHERS)
def test_it_is_the_run_that_was_trained_so_from_the_start(kind: str) -> None:
    options = [] if "-k" in OTHERS[kind] else ["-k", "3"]
    name = kind.replace(" ", "-")
    assert main(["fit", "photos", "-o", f"{name}-whole", *SLOWER, *options, *OTHERS[kind]]) == 0
    assert content(branch(name, *OTHERS[kind])) == content(Path(f"{name}-whole"))
    assert content(Path(name))["assignments.csv"] != content(Path("origin"))["assignments.csv"]
    assert json.loads(Path(name, "run.json").read_text())["from"] == str(Path("origin").resolve())
    assert "resumed at step 7 of 12 where clustering begins\n" in Path(name, "train.log").read_text()


def test_it_can_be_resumed_and_gone_on_from_itself() -> None:
    run = branch("resumed", "-k", "4")
    whole = content(run)
    for left in ("checkpoints", "model"):  # as after a kill in its first steps
        shutil.rmtree(run / left)
    assert main(["fit", "--resume", "-o", str(run), *QUIET]) == 0
    assert content(run) == whole
    assert main(["fit", "--from", str(run), "-o", "again", "-k", "3", *QUIET]) == 0
    assert content(Path("again")) == content(Path("origin"))


def test_a_run_that_may_only_be_read_is_gone_on_from_in_a_folder_of_ones_own() -> None:
    shutil.copytree("origin", "archive")
    inner = [path for path in Path("archive/features").rglob("*") if path.is_dir()]
    for folder in (Path("archive/features"), *inner):
        folder.chmod(0o555)
    assert main(["fit", "--from", "archive", "-o", "mine", "-k", "4", *QUIET]) == 0
    assert all(path.stat().st_mode & 0o200 for path in Path("mine/features").rglob("*"))
    assert Path("mine/features").stat().st_mode & 0o200


def test_its_minutes_are_those_of_the_whole_training() -> None:
    state = next(Path("origin/features").iterdir()) / "manifest.json"
    before = json.loads(state.read_text())["content"]["facts"]["seconds"]
    *_, whole = [json.loads(line)["minutes"] for line in Path("origin/metrics.jsonl").read_text().splitlines()]
    assert 0 < before / 60 <= whole + 1e-3
    branch("timed", "-k", "4")
    first, *_, last = [json.loads(line) for line in Path("timed/metrics.jsonl").read_text().splitlines()]
    assert first["minutes"] <= before / 60 + 1e-3 <= last["minutes"] + 2e-3


def test_other_features_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for options, fixed in {
        "--epochs 5": "--epochs",
        "photos -k 4": "photos",
        "-k 4 --seed 1 --batch-size 8": "--batch-size, --seed",
        "--recipe digits": "--recipe",
        "--data-dir .": "--data-dir",
    }.items():
        assert main(["fit", "--from", "origin", "-o", "x", *options.split()]) == 2
        says = f"leave out {fixed}; only these options may change: --balance, --beta, --cluster-lr, "
        assert says in capsys.readouterr().err
    cases = {
        ("origin", "x", "--beta", "0", "--gamma", "0"): "nothing would be clustered",
        ("origin", "origin", "-k", "4"): "name another folder",
        ("orign", "x", "-k", "4"): "did you mean origin?",
        ("photos", "x", "-k", "4"): "holds no run",
        ("origin", "x", "-k", "31"): "more than the 30 images",
        ("origin", "resumed", "-k", "5"): "already holds a run",
        ("one-course", "x", "--cluster-lr", "0.1"): "trained without one; leave it out",
        ("origin", "x", "--cluster-lr", "none"): "trained with one; give a number",
    }
    assert main(["fit", "photos", "-k", "3", "-o", "one-course", *SLOWER, "--cluster-lr", "none"]) == 0
    branch("resumed", "-k", "4", "--overwrite")
    for (origin, output, *options), answer in cases.items():
        assert main(["fit", "--from", origin, "-o", output, *options, *QUIET]) == 2
        assert answer in capsys.readouterr().err
    assert not Path("x").exists()


def test_a_run_without_features_says_why(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    fit = ["fit", "photos", *SLOWER, "-k", "3"]
    assert main([*fit, "-o", "early", "--cluster-start", "0"]) == 0
    assert main([*fit, "-o", "without-byol", "--alpha", "0", "--head-init", "random"]) == 0
    assert main([*fit, "-o", "rounded", "--cluster-start", "0.01"]) == 0  # of 12 steps
    assert main([*fit, "-o", "never", "--beta", "0", "--gamma", "0", "--head-init", "random"]) == 0
    with monkeypatch.context() as killed:
        killed.setattr("concurl.training.trainer.Trainer.fit", lambda trainer: (_ for _ in ()).throw(KeyboardInterrupt))
        assert main([*fit, "-o", "stopped"]) == 130
    shutil.copytree("origin", "bereft")
    shutil.rmtree("bereft/features")
    for run, why in {
        **dict.fromkeys(("early", "without-byol"), "clustering began with the first step (see --cluster-start)"),
        "never": "beta and gamma are both 0 there, so clustering never begins",
        "stopped": "clustering has not begun yet; go on with it first: concurl fit --resume -o stopped",
        **{
            run: f"{run}/features is not there; bring it back, or train anew (if clustering began at once: for more "
            "epochs, or with a later --cluster-start)"
            for run in ("bereft", "rounded")
        },
    }.items():
        capsys.readouterr()
        assert main(["fit", "--from", run, "-o", "x", "-k", "4", "--beta", "0.5"]) == 2
        assert capsys.readouterr().err == f"concurl: {run} has no sound features to go on from: {why}\n"
    assert not Path("x").exists()


def test_without_its_metrics_the_origin_will_do() -> None:
    shutil.copytree("origin", "silent")
    Path("silent/metrics.jsonl").unlink()
    assert main(["fit", "--from", "silent", "-o", "from-silent", "-k", "3", *QUIET]) == 0
    assert Path("from-silent/assignments.csv").read_bytes() == Path("origin/assignments.csv").read_bytes()


def test_damaged_features_are_refused_and_not_trained_anew(capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree("origin", "damaged")
    (weights,) = Path("damaged/features").glob("*/state.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1])
    assert main(["fit", "--from", "damaged", "-o", "x", "-k", "4"]) == 2
    assert "no sound features to go on from: damaged/features is damaged" in capsys.readouterr().err
    assert not Path("x").exists()


def test_no_late_option_is_left_out() -> None:
    changed = {word.strip("-").replace("-", "_") for options in OTHERS.values() for word in options if word[0] == "-"}
    assert changed == LATE - {"n_clusters"} | {"k"}


def test_other_images_are_refused_before_a_run_is_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    before = content(branch("kept", "-k", "4"))
    shutil.copytree("photos", "fewer")
    Path("fewer/00.png").unlink()
    for output, more in (("kept", ["--overwrite"]), ("new", [])):
        words = ["fit", "--from", "origin", "-k", "5", "-o", output, "--source", "fewer", *more, *QUIET]
        assert main(words) == 2
        assert "fewer: not the images whose features origin has" in capsys.readouterr().err
    assert content(Path("kept")) == before
    assert not Path("new").exists()
