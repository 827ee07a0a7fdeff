"""SIGTERM and SIGINT at random moments: the right exit code, soon, with nobody left behind and no half file."""

from __future__ import annotations

import io
import json
import os
import pty
import random
import re
import signal
import sys
import termios
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from user_runs import OPTIONS, Run, Warm, half_files, photos

from concurl import cli
from concurl.training.checkpoint import checkpoints, load_newest
from concurl.training.interrupt import SignalWatch, Terminated, termination_as_exception

CODES = {signal.SIGTERM: 143, signal.SIGINT: 130}
# Where a signal may fall: a stage is known by what the run says when it begins; decoding, by the packed copy that grows.
STAGES = {"start": None, "decode": None, "read": "read:", "train": "training on", "end": "train: 12 of 12"}


@dataclass
class Tally:
    signals: int = 0
    by_stage: dict[str, int] = field(default_factory=dict)
    slowest: float = 0.0
    too_late: int = 0  # the run had ended before
    decoding: dict[int, int] = field(default_factory=dict)  # by number of workers: signals that fell among pictures


def torture(where: Path, warm: Warm, *, signals: int, seed: int) -> Tally:
    dice, tally = random.Random(seed), Tally()
    photos(where / "photos")
    slow_photos(where / "slow")
    while tally.signals < signals:
        turn = tally.signals + tally.too_late
        stage, number = list(STAGES)[turn % len(STAGES)], dice.choice(list(CODES))
        workers, folder, cache = turn // len(STAGES) % 2 * 2, where / f"run-{turn}", where / f"cache-{turn}"
        source = "slow" if stage == "decode" else "photos"
        run = Run(
            *["fit", source, "-k", "3", "-o", folder.name, "--workers", str(workers), "--epochs", "4", *OPTIONS],
            *["--checkpoint-minutes", "10"],  # so that what is saved is saved because of the signal
            cwd=where,
            warm=warm,
            XDG_CACHE_HOME=str(cache),  # nothing is packed yet
        )
        if stage == "decode":
            await_pixels(run, cache)
        elif STAGES[stage] is not None:
            run.await_line(STAGES[stage])
        time.sleep(dice.uniform(0, 0.3))
        if stage == "decode" and "read:" not in run.stderr:
            tally.decoding[workers] = tally.decoding.get(workers, 0) + 1
            assert len(run.processes()) == 1 + workers
        sent = time.monotonic()
        in_time = run.send(number)
        code = run.end()
        if not in_time or code == 0:
            assert code == 0, run.stderr
            assert run.ended - sent < 1, f"{number!r} was lost ({stage}): {run.stderr}"
            tally.too_late += 1
            continue
        assert code == CODES[number], (stage, run.stderr)
        assert "Traceback" not in run.stderr
        assert run.left_behind() == []
        assert half_files(where) == []
        if "stopped at step" in run.stderr:
            _check_nothing_lost(folder, run.stderr)
        tally.signals += 1
        tally.by_stage[stage] = tally.by_stage.get(stage, 0) + 1
        tally.slowest = max(tally.slowest, run.ended - sent)
        print(tally, flush=True)
    return tally


def slow_photos(folder: Path, n: int = 80) -> None:
    """Pictures of three megapixels: one takes a decoder some 50 ms."""
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (100, 100, 3), dtype=np.uint8).repeat(15, 0).repeat(20, 1)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG", compress_level=1)
    for i in range(n):
        (folder / f"{i:03d}.png").write_bytes(stream.getvalue() + b"%d" % i)  # behind its end: else it were a copy


def await_pixels(run: Run, cache: Path) -> None:
    """Until the first pictures have been decoded, and the others are being."""
    while run.code is None:
        if any(path.stat().st_size for path in cache.glob("concurl/.*.npy.partial")):
            return
        time.sleep(0.01)


def _check_nothing_lost(folder: Path, said: str) -> None:
    """The checkpoint is of the step at which the run says that it stopped, and verifies."""
    found = re.search(r"stopped at step (\d+)", said)
    found_state = load_newest(folder / "checkpoints")
    assert found is not None
    assert found_state is not None
    assert found_state[1]["step"] == int(found[1])
    assert checkpoints(folder / "checkpoints")[-1].name == f"step-{int(found[1]):010d}"


def test_a_few_signals(tmp_path: Path, warm: Warm) -> None:
    tally = torture(tmp_path, warm, signals=7, seed=1)
    assert tally.slowest < 5
    assert tally.decoding.keys() == {0, 2}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_hundred_signals(tmp_path: Path, warm: Warm) -> None:
    tally = torture(tmp_path, warm, signals=100, seed=2)
    assert tally.slowest < 5
    assert min(tally.decoding[0], tally.decoding[2]) >= 5


def test_a_second_interrupt_stops_at_once(tmp_path: Path, warm: Warm) -> None:
    """Without saving: the folder holds what it held before."""
    photos(tmp_path / "photos")
    options = [*OPTIONS, "--checkpoint-minutes", "10", "--epochs", "100000"]
    run = Run("fit", "photos", "-k", "3", "-o", "run", *options, cwd=tmp_path, warm=warm)
    run.await_line("training on")
    while not (tmp_path / "run" / "metrics.jsonl").exists():
        time.sleep(0.01)
    epochs = len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    for _ in range(50):  # the first asks, any later one that comes before the save insists
        if not run.send(signal.SIGINT):
            break
        time.sleep(0.001)
    assert run.end() == 130
    assert "Traceback" not in run.stderr
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) >= epochs
    assert half_files(tmp_path) == []


@pytest.fixture
def hangup_heard() -> Iterator[None]:
    """The tests themselves may be run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


class Fading:
    """A signal comes just while it goes."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        signal.raise_signal(self.number)


def fade_and_work_on(number: int) -> None:
    Fading(number)  # Python ignores what a destructor raises, says so, and goes on
    time.sleep(10)


@pytest.mark.parametrize(
    ("number", "kind"),
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated), (signal.SIGHUP, Terminated)],
)
@pytest.mark.usefixtures("hangup_heard")
def test_a_signal_within_a_destructor_is_not_lost(
    number: int, kind: type[BaseException], capfd: pytest.CaptureFixture[str]
) -> None:
    before = sys.unraisablehook, signal.getsignal(number)
    with termination_as_exception(), pytest.raises(kind):
        fade_and_work_on(number)
    assert "ignored" not in capfd.readouterr().err
    assert (sys.unraisablehook, signal.getsignal(number)) == before


def test_a_signal_is_not_sent_again_while_the_first_is_still_being_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def slow_start(thread: threading.Thread) -> None:  # as on a busy machine
        start(thread)
        time.sleep(0.2)

    monkeypatch.setattr(threading.Thread, "start", slow_start)
    with termination_as_exception(), pytest.raises(KeyboardInterrupt):
        fade_and_work_on(signal.SIGINT)


def test_other_errors_of_destructors_go_where_they_went(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: heard.append(str(lost.exc_value)))
    with termination_as_exception():
        Fading(-1)  # no signal has that number
    assert len(heard) == 1


def test_a_second_interrupt_does_not_wait_for_the_step() -> None:
    with SignalWatch() as signals:
        signal.raise_signal(signal.SIGINT)
        assert signals.caught == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_who_goes_on_pressing_sees_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(sys, "argv", ["concurl", "fit"])
    monkeypatch.setattr(cli, "_run", pressed)
    monkeypatch.setattr(cli, "_say", pressed)  # while it still says that it stops
    before = signal.getsignal(signal.SIGINT)
    try:
        assert cli.main() == 130
    finally:
        signal.signal(signal.SIGINT, before)


def test_predict_is_stopped_among_pictures(tmp_path: Path, warm: Warm) -> None:
    photos(tmp_path / "photos")
    slow_photos(tmp_path / "slow")
    run = Run(
        "fit", "photos", "-k", "3", "-o", "run", "--epochs", "1", *OPTIONS, "--no-report", cwd=tmp_path, warm=warm
    )
    assert run.end() == 0
    for number, code in CODES.items():
        cache = tmp_path / f"cache-{code}"
        run = Run("predict", "run", "slow", "-o", "new.csv", cwd=tmp_path, warm=warm, XDG_CACHE_HOME=str(cache))
        await_pixels(run, cache)
        run.send(number)
        assert run.end() == code, run.stderr
        assert "Traceback" not in run.stderr
        assert run.left_behind() == []
        assert half_files(tmp_path) == []
        assert not (tmp_path / "new.csv").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.usefixtures("hangup_heard")
def test_a_new_interpreter_is_stopped_alike(tmp_path: Path, number: int, code: int) -> None:
    photos(tmp_path / "photos")
    options = [*OPTIONS, "--checkpoint-minutes", "10", "--epochs", "100000"]
    run = Run("fit", "photos", "-k", "3", "-o", "run", *options, cwd=tmp_path)
    run.await_line("training on")
    time.sleep(0.1)
    run.send(number)
    assert run.end() == code
    assert "--resume -o run" in run.stderr
    _check_nothing_lost(tmp_path / "run", run.stderr)
    assert run.left_behind() == []


def test_a_closed_terminal_loses_no_step(tmp_path: Path) -> None:
    """Its bar of progress, and the last word, are then written to nowhere."""
    photos(tmp_path / "photos")
    options = [*OPTIONS, "--checkpoint-minutes", "10", "--epochs", "100000"]
    command = [sys.executable, "-m", "concurl", "fit", "photos", "-k", "3", "-o", "run", *options]
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        termios.tcsetwinsize(0, (24, 80))  # a new one has no columns, and shows no bar
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.execv(command[0], command)
    while not (tmp_path / "run" / "metrics.jsonl").exists():
        os.read(terminal, 10_000)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 129
    assert load_newest(tmp_path / "run" / "checkpoints") is not None


def test_under_nohup_a_closed_terminal_is_not_heard(hangup_heard: None) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with termination_as_exception(), SignalWatch() as signals:
        signal.raise_signal(signal.SIGHUP)
    assert signals.caught is None
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
