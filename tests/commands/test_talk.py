"""What the command line says when nothing is wrong: help, progress, what to expect."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_run import fit


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


def test_a_handful_of_images_is_told_what_to_expect(capsys: pytest.CaptureFixture[str], photos: Path) -> None:
    assert fit(photos) == 0
    assert "24 images for 3 clusters are few" in capsys.readouterr().err


def test_who_has_read_enough_hears_no_complaint(photos: Path) -> None:
    """`concurl audit PHOTOS | head`, with a head that reads nothing at all."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as unread:
        command = [sys.executable, "-m", "concurl", "audit", str(photos), "--quiet"]
        done = subprocess.run(command, stdout=unread, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (141, "")
