"""A run's folder beside the user's own files: what no run has written stays, byte for byte."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from concurl.cli import main
from concurl.runs.runfolder import run_folder, write_text
from small_run import TINY, fit, refused
from trees import tree_hash

OWN = ["report.html", "assignments.csv", "model/mine.txt", "checkpoints/mine.txt", "train.log", "run.json"]


def write(path: str, text: str = "mine") -> Path:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)
    return Path(path)


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_of_the_users_is_not_replaced(
    photos: Path, capsys: pytest.CaptureFixture[str], name: str, overwrite: bool
) -> None:
    write(f"run/{name}")
    before = tree_hash(Path("run"))
    line = refused(capsys, "fit", str(photos), "-k", "3", "-o", "run", *TINY, *["--overwrite"] * overwrite)
    assert f"a run would replace {name.split('/')[0]}, which none has written" in line
    assert "--overwrite" not in line
    assert tree_hash(Path("run")) == before
    assert name.split("/")[0] in refused(capsys, "demo", "-o", "run")
    assert tree_hash(Path("run")) == before


def test_another_programs_config_is_no_run(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write("run/config.json", '{"architectures": ["ViT"], "hidden_size": 768}')
    assert "config.json, which none has written" in refused(capsys, "fit", str(photos), "-o", "run", *TINY)
    assert "holds no run to resume" in refused(capsys, "fit", "--resume", "-o", "run", "--quiet")
    write("run/run.json", '{"source": 3, "data_dir": null, "limit": null}')
    assert "run.json, which none has written" in refused(capsys, "fit", str(photos), "-o", "run", *TINY)


def test_other_files_may_lie_beside_a_run(photos: Path) -> None:
    for name in ("notes.txt", ".hidden", "pictures/1.png"):
        write(f"run/{name}")
    Path("run/model").mkdir()
    write("run/train.log", "")  # as a kill may leave it
    assert fit(photos) == 0
    for name in ("checkpoints/mine.txt", "features/step-by-step.txt"):
        write(f"run/{name}")
    assert fit(photos, "--overwrite") == 0
    for name in ("notes.txt", ".hidden", "pictures/1.png", "checkpoints/mine.txt", "features/step-by-step.txt"):
        assert Path("run", name).read_text() == "mine"


def test_overwrite_leaves_nothing_of_the_run_before(photos: Path) -> None:
    assert fit(photos, "--cluster-start", "0.5") == 0
    assert any(Path("run/features").iterdir())
    with run_folder(Path("run"), resume=False, overwrite=True):
        left = {path.name for path in Path("run").iterdir()}
    assert left == {".lock", "run.json"}  # the mark of a run's folder stays until the next run writes its own


def test_the_models_folder_is_replaced_as_a_whole_and_so_must_be_a_runs(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(photos) == 0
    write("run/model/mine.txt")
    write("run/model/.hidden")
    before = tree_hash(Path("run"))
    for call in (["fit", str(photos), "-k", "3", *TINY, "--overwrite"], ["fit", "--resume", "--quiet"]):
        assert "replace model/.hidden, model/mine.txt, which" in refused(capsys, *call, "-o", "run")
    assert tree_hash(Path("run")) == before


def test_a_run_killed_while_it_began_can_be_started_again(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any of its first writes: what lies there is its own, whether a new run, another's features or --overwrite began."""
    from concurl.runs import runfolder

    assert fit(photos, "--cluster-start", "0.5") == 0
    Path("run").rename("origin")
    new = ["fit", str(photos), "-k", "3", "-o", "run", *TINY]
    calls = [new, [*new, "--overwrite"], ["fit", "--from", "origin", "-o", "other", "--quiet", "--no-report"]]
    plain = runfolder.write_whole
    for call in calls:
        for last in range(4):
            written: list[Path] = []

            def write_whole(path: Path, content: bytes, written: list[Path] = written, last: int = last) -> None:
                if len(written) == last:
                    raise KeyboardInterrupt
                plain(path, content)
                written.append(path)

            with monkeypatch.context() as killed:
                killed.setattr(runfolder, "write_whole", write_whole)
                assert main(call) == 130
            assert not Path(call[call.index("-o") + 1], "config.json").exists()
        assert main(call) == 0


def test_old_names_do_not_land_on_new_clusters(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(photos) == 0
    names = json.dumps({"0": "dogs"})
    write("run/names.json", names)
    assert fit(photos, "--overwrite", "--seed", "1") == 0
    for said in (capsys.readouterr().err, Path("run/train.log").read_text()):
        assert "names.json is now names.json.old" in said
    assert Path("run/names.json.old").read_text() == names
    assert not Path("run/names.json").exists()
    assert "dogs" not in Path("run/assignments.csv").read_text()


@pytest.mark.parametrize("source", ["photos", "digits"])
def test_the_demo_replaces_no_run_but_a_demo(photos: Path, capsys: pytest.CaptureFixture[str], source: str) -> None:
    few = ["--limit", "24"] if source == "digits" else []
    assert main(["fit", source, "-k", "3", "-o", "run", *TINY, *few]) == 0
    before = tree_hash(Path("run"))
    says = "run holds a run that concurl demo has not written; choose another folder with -o"
    assert says in refused(capsys, "demo", "--quick", "-o", "run")
    assert tree_hash(Path("run")) == before


def test_a_quick_demo_leaves_the_whole_ones_result_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("concurl.runs.run.fit", stopped)
    for _ in range(2):  # one demo after another needs no word
        assert main(["demo"]) == main(["demo", "--quick"]) == 130
    for folder, epochs in (("demo", 120), ("demo-quick", 6)):
        assert json.loads(Path("runs", folder, "config.json").read_text())["epochs"] == epochs


def test_names_that_are_no_text_are_written_as_they_are() -> None:
    write_text(Path("nan-batch.txt"), os.fsdecode(b"caf\xe9.png\n"))
    assert Path("nan-batch.txt").read_bytes() == b"caf\xe9.png\n"
