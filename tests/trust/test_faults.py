"""What goes wrong inside a run: NaN, images that vanish or crash their decoder, jumping clocks, a second run."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from user_runs import FIT, Run, Warm, half_files, results

from concurl.cli import main
from concurl.training.checkpoint import checkpoints, load_newest
from concurl.training.step import Step

pytestmark = pytest.mark.usefixtures("here")


RESUME = ["fit", "--resume", "-o", "run", "--quiet", "--no-report"]


def spoil(monkeypatch: pytest.MonkeyPatch, at: int, what: str) -> None:
    """From step `at` on, the loss is NaN; or the weights are, after it."""
    plain = Step.__call__

    def step(self: Step, images: Any, ids: Any, number: torch.Tensor, settings: Any, clustering: bool) -> torch.Tensor:
        losses = plain(self, images, ids, number, settings, clustering)
        if int(number) == at and what == "weights":
            self.model.prototypes.data.fill_(float("inf"))
        return losses * float("nan") if int(number) >= at and what == "loss" else losses

    monkeypatch.setattr(Step, "__call__", step)


@pytest.mark.parametrize("what", ["loss", "weights"])
def test_a_divergence_is_named_to_the_step(
    what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(monkeypatch, 7, what)
    assert main([*FIT, "--checkpoint-minutes", "0"]) == 1
    said = capsys.readouterr().err
    assert "at step 7:" in said
    assert "--learning-rate" in said
    assert "the images of that step are in run/nan-batch.txt" in said
    assert "Traceback" not in said
    found = load_newest(Path("run/checkpoints"))
    assert found is not None
    assert found[1]["step"] == 7, "the state before the bad step is the last good one"
    assert all(bool(torch.isfinite(t).all()) for t in found[0].values() if t.is_floating_point())
    # The batch, found independently: the order of the epoch in which step 7 lies.
    from concurl.data.batches import epoch_order

    names = sorted(path.name for path in Path("photos").iterdir())
    batch = epoch_order(0, 7 // 3, 24)[8 * (7 % 3) : 8 * (7 % 3) + 8].tolist()
    assert Path("run/nan-batch.txt").read_text().split() == [names[i] for i in batch]


def test_the_step_is_known_even_if_nobody_looks_until_the_epoch_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(monkeypatch, 7, "loss")
    assert main([*FIT, "--checkpoint-minutes", "10"]) == 1
    assert "at step 7:" in capsys.readouterr().err


def test_a_diverged_run_says_so_when_resumed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as bad:
        spoil(bad, 7, "loss")
        assert main([*FIT, "--checkpoint-minutes", "0"]) == 1
    capsys.readouterr()
    assert main(RESUME) == 0  # the cause has gone: here it was the test
    assert "diverged before" in capsys.readouterr().err
    assert not Path("run/nan-batch.txt").exists()


def test_images_may_vanish_and_change_during_a_run(monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    assert main(FIT) == 0
    wanted = results(here / "run")
    plain = Step.__call__

    def step(self: Step, images: Any, ids: Any, number: torch.Tensor, *rest: Any) -> torch.Tensor:
        if int(number) == 2:
            for i, path in enumerate(sorted(Path("photos").iterdir())):
                path.unlink() if i % 2 else path.write_bytes(b"something else")
        return plain(self, images, ids, number, *rest)

    monkeypatch.setattr(Step, "__call__", step)
    assert main([*FIT, "--overwrite"]) == 0
    assert results(here / "run") == wanted


@pytest.mark.parametrize("killed", ["at its end", "before its first checkpoint"])
def test_a_run_is_not_resumed_on_other_images(killed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(FIT) == 0
    if killed == "before its first checkpoint":
        for inner in ("checkpoints", "features", "model"):
            shutil.rmtree(Path("run", inner))
    Path("photos/003.png").unlink()
    capsys.readouterr()
    assert main(RESUME) == 2
    assert "images have changed" in capsys.readouterr().err


def test_a_run_killed_before_its_first_checkpoint_begins_anew_and_says_so(
    monkeypatch: pytest.MonkeyPatch, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late = [*FIT, "--checkpoint-minutes", "10"]
    assert main(late) == 0
    wanted = results(here / "run")
    plain = Step.__call__

    def step(self: Step, images: Any, ids: Any, number: torch.Tensor, *rest: Any) -> torch.Tensor:
        if int(number) == 3:  # before clustering, whose beginning is kept, too
            raise KeyboardInterrupt
        return plain(self, images, ids, number, *rest)

    with monkeypatch.context() as bad:
        bad.setattr(Step, "__call__", step)
        assert main([*late, "--overwrite"]) == 130
    assert len(Path("run/metrics.jsonl").read_text().splitlines()) == 1
    assert checkpoints(Path("run/checkpoints")) == checkpoints(Path("run/features")) == []
    log = Path("run/train.log").read_bytes()
    capsys.readouterr()
    assert main(RESUME) == 0
    assert "no sound checkpoint yet: starting again from the first step" in capsys.readouterr().err
    assert results(here / "run") == wanted
    assert len(Path("run/train.log").read_bytes()) > len(log)
    assert Path("run/train.log").read_bytes().startswith(log)


def test_a_picture_that_crashes_its_decoder_is_put_aside(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same run as without that picture; and it is in skipped.csv, with the reason."""
    from concurl.data.checking import audit

    (here / "crashing.py").write_text(
        "import os, signal\n"
        "from concurl.data.checking import examine as real\n"
        "def examine(task):\n"
        "    if b'007.png' in task:\n"
        "        os.kill(os.getpid(), signal.SIGSEGV)\n"
        "    return real.examine(task)\n"
    )
    monkeypatch.syspath_prepend(here)
    with monkeypatch.context() as bad:
        bad.setattr(audit, "EXAMINE", "crashing:examine")
        assert main([*FIT, "--workers", "2"]) == 0
    found = results(here / "run")
    skipped = Path("run/skipped.csv").read_text().splitlines()[1:]
    assert skipped == ["007.png,unreadable,the decoder crashed (SIGSEGV)"]
    Path("photos/007.png").unlink()
    assert main([*FIT, "--overwrite"]) == 0
    assert found == results(here / "run")


def test_a_clock_that_jumps(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By years, forwards and backwards, at every look: nothing hangs on what time it is."""
    import random
    import time

    assert main(FIT) == 0
    wanted = results(here / "run")
    dice, looks = random.Random(0), []

    def jumping() -> float:
        looks.append(dice.uniform(0, 4e9))
        return looks[-1]

    with monkeypatch.context() as odd:
        odd.setattr(time, "time", jumping)  # every line of train.log asks for the time
        assert main([*FIT, "--overwrite", "--checkpoint-minutes", "0.0005"]) == 0
    assert looks
    assert results(here / "run") == wanted


def test_a_second_run_in_the_folder_is_refused(here: Path, warm: Warm, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever it wants to do there; the first one does not notice."""
    loud = [word for word in FIT if word != "--quiet"]
    assert main(loud) == 0
    wanted = results(here / "run")
    first = Run(*loud, "--overwrite", "--epochs", "60", cwd=here, warm=warm)
    assert first.await_line("training on")
    capsys.readouterr()
    for second in ([*FIT, "--overwrite"], RESUME):
        assert main(second) == 2
        assert "another process is running there" in capsys.readouterr().err
    assert main(FIT) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert first.code is None, "it should not have ended yet"
    first.send(signal.SIGKILL)
    first.end()
    assert main([*FIT, "--overwrite"]) == 0, "a killed run leaves no lock behind"
    assert results(here / "run") == wanted


def test_two_writers_of_one_file(here: Path) -> None:
    """The second is refused, and the first one's file is whole; what a kill left is written over."""
    from concurl.atomic import write_whole, written_aside
    from concurl.errors import UserError

    path = here / "new.csv"
    (here / ".new.csv.partial").write_text("left by a kill, and longer than what comes")
    with written_aside(path) as file:
        file.write(b"the first, ")
        with pytest.raises(UserError, match="another process is writing it"):
            write_whole(path, b"the second")
        file.write(b"to its end")
    assert path.read_bytes() == b"the first, to its end"
    write_whole(path, b"a later one")
    assert path.read_bytes() == b"a later one"
    assert half_files(here) == []


def test_a_name_cannot_speak_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither in an answer nor in a warning: a line stays one, and nothing in it is obeyed."""
    evil = "\x1b]0;owned\x07\x1b[2J\nconcurl: all is well"
    Path("list.csv").write_text(f'"{evil}"\nphotos/000.png\n')
    assert main(["audit", "list.csv"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("concurl: ")
    assert "\\x1b]0;owned" in said
    assert said.count("\n") == 1
    assert main([*FIT, "--checkpoint-minutes", "0"]) == 0
    Path(f"run/checkpoints/step-z{evil}").mkdir()
    capsys.readouterr()
    assert main(RESUME) == 0
    log = Path("run/train.log").read_text()
    for said in (capsys.readouterr().err, log):
        assert "is damaged" in said
        assert "\x1b" not in said
        assert not any(line.startswith("concurl: all is well") for line in said.splitlines())


def test_checkpoints_by_epochs() -> None:
    assert main([*FIT, "--checkpoint-minutes", "10", "--checkpoint-epochs", "3"]) == 0
    assert [path.name for path in checkpoints(Path("run/checkpoints"))] == ["step-0000000009", "step-0000000012"]


def test_a_name_for_the_run_that_is_a_file_or_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run").write_text("")
    assert main(FIT) == 2
    assert "is a file" in capsys.readouterr().err
