"""The lines of a stage where there is no terminal: how far, how long to go; and who says them."""

from __future__ import annotations

import io
import logging
import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from concurl import progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_the_first_step_s_compiler_does_not_count_among_those_to_come(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "concurl")
    stage = progress.Progress("train", 1_001, "steps")
    clock[0] += 40  # a compiler's
    stage.advance(1)
    for _ in range(240):
        clock[0] += 0.125
        stage.advance(1, "loss 1")
    assert caplog.messages == ["train: 1 of 1,001 steps", "train: 241 of 1,001 steps, 1:35 left  loss 1"]


def test_what_was_done_before_does_not_make_it_look_faster(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "concurl")
    stage = progress.Progress("train", 1_000, "steps", done=900)
    for _ in range(100):
        clock[0] += 1
        stage.advance(1)
    assert caplog.messages[0] == "train: 930 of 1,000 steps, 1:10 left"
    assert caplog.messages[-1] == "train: 1,000 of 1,000 steps, 0:00 left"


def test_another_programs_handler_has_lines_instead_of_a_bar(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "concurl")
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(logging.getLogger(), "handlers", [caplog.handler])
    progress.Progress("train", 3, "steps").advance(3)
    assert terminal.getvalue() == ""
    assert caplog.messages == ["train: 3 of 3 steps, 0:00 left"]


def test_hours_are_told_as_hours(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "concurl")
    stage = progress.Progress("train", 241, "steps")
    stage.advance(1)
    clock[0] += 30
    stage.advance(1)
    assert caplog.messages == ["train: 2 of 241 steps, 1:59:30 left"]


@pytest.mark.parametrize(("level", "shown"), [(logging.INFO, True), (logging.WARNING, False)])
def test_a_bar_is_for_those_who_hear_of_progress(
    level: int, shown: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(logging.getLogger(), "handlers", [progress.AboveBars()])
    caplog.set_level(level, "concurl")
    stage = progress.Progress("train", 10, "steps")
    stage.close()
    assert (stage.bar is not None) is shown


@pytest.mark.parametrize("stderr", [None, SimpleNamespace(write=len, flush=lambda: None)], ids=["closed", "a writer"])
def test_what_takes_the_place_of_stderr_need_not_know_of_terminals(
    stderr: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(logging.getLogger(), "handlers", [progress.AboveBars()])
    caplog.set_level(logging.INFO, "concurl")
    stage = progress.Progress("train", 10, "steps")
    stage.advance(10)
    stage.close()
    assert stage.bar is None


def test_a_line_has_its_own_place_above_the_bar(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(logging.getLogger(), "handlers", [progress.AboveBars()])
    caplog.set_level(logging.INFO, "concurl")
    stage = progress.Progress("train", 10, "steps")
    progress.log.warning("few images")
    stage.close()
    assert "few images" in re.split("[\r\n]+", terminal.getvalue())


def test_of_several_processes_the_first_alone_speaks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # so that the next test has its own again
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        progress.speak(quiet=False)
        progress.log.warning("few images, says %s", rank)
    assert capsys.readouterr().err == "few images, says 0\n"
