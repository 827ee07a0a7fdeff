"""The lines of a stage where there is no terminal: how far, how long to go."""

from __future__ import annotations

import logging

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
    assert caplog.messages == ["train: 1 of 1001 steps", "train: 241 of 1001 steps, 1:35 left  loss 1"]


def test_what_was_done_before_does_not_make_it_look_faster(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "concurl")
    stage = progress.Progress("train", 1_000, "steps", done=900)
    for _ in range(100):
        clock[0] += 1
        stage.advance(1)
    assert caplog.messages[0] == "train: 930 of 1000 steps, 1:10 left"
    assert caplog.messages[-1] == "train: 1000 of 1000 steps, 0:00 left"
