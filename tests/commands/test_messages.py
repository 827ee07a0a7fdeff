"""What the command line says when nothing is wrong: help, progress, what to expect."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import re
import shlex
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

import pytest
from PIL import Image
from tqdm import tqdm

from concurl.cli import VERBS, main
from small_run import TINY, fit, rows


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
    for symbol in "K M B tau tau_B epsilon alpha beta gamma A C d".split():
        assert f"[{symbol}]" in text
    assert text.count("(default:") >= len(fields(Config))
    assert "(default: from the images)" in text  # and not None, of which nobody could tell what it does
    assert "default: None" not in text
    check = "import sys, concurl.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0, "the command line imports torch too early"


@pytest.mark.parametrize("columns", [80, 200])
def test_help_fits_the_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["--help"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80, "it is written by hand, for any terminal"
    for verb in VERBS:
        with pytest.raises(SystemExit):
            main([verb, "--help"])
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= min(columns, 110), verb
        assert sum(map(bool, lines[: lines.index("")])) <= 4, f"{verb}: a usage that fills the screen hides the rest"


def test_help_on_a_verb_is_the_verbs_own(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for argv in (["help", "audit"], ["audit", "--help"]):
        with pytest.raises(SystemExit) as exit:
            main(argv)
        assert exit.value.code == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]


def test_a_terminal_shows_one_bar_for_each_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    from concurl.progress import Progress, speak, stages

    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    speak(quiet=False)
    Progress("label", 0, "images").close()  # a part of a small set may be empty: nothing to show
    resumed = Progress("train", 200, "steps", done=190)
    resumed.advance(5, "loss 1.25")
    resumed.close()
    show = stages()
    for done in range(2, 31, 2):
        show("audit", done, 30)
    for done in range(1, 751):
        show("map", done, 750)
    shown = terminal.getvalue()
    assert shown.count("\n") == 3
    assert re.search(r"195/200 .* loss 1\.25", shown)
    assert "30/30" in shown
    assert re.search(r"750/750 .* steps/s", shown)


def test_slow_steps_have_a_rate_that_can_be_read() -> None:
    from concurl.progress import BAR

    shown = tqdm.format_meter(3, 41535, elapsed=20, unit=" steps", bar_format=BAR, ncols=100)
    assert shown.endswith("[00:20<76:54:40,  0.15 steps/s]")


def test_what_is_said_beside_a_bar_has_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from concurl import cli
    from concurl.commands import audit
    from concurl.progress import speak, stages

    def stopped(rest: list[str]) -> int:
        speak(quiet=False)
        show = stages()
        show("audit", 1, 30)
        logging.getLogger("concurl").warning("few images")
        show("audit", 2, 30)
        raise KeyboardInterrupt

    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(audit, "main", stopped)
    assert cli.main(["audit"]) == 130
    lines = [line.split("\r")[-1] for line in terminal.getvalue().split("\n")]
    assert [line[:6] for line in lines] == ["few im", "audit:", "concur", ""]


def test_a_handful_of_images_is_told_what_to_expect(capsys: pytest.CaptureFixture[str], photos: Path) -> None:
    assert fit(photos) == 0
    assert "24 images for 3 clusters are few" in capsys.readouterr().err


def test_the_last_line_on_training_has_the_last_epochs_loss(photos: Path) -> None:
    assert fit(photos) == 0
    losses = [json.loads(line)["loss"] for line in Path("run/metrics.jsonl").read_text().splitlines()]
    (ended,) = re.findall(r"train: 6 of 6 steps, .* loss ([\d.]+),", Path("run/train.log").read_text())
    assert ended == f"{losses[-1]:.3f}" != f"{losses[0]:.3f}"


def test_a_bad_verdict_of_the_page_is_told_on_the_terminal_too(
    photos: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from concurl.report import checks

    warned = "not healthy: do not rely on these clusters yet (clustering did not start); its page says what to try"
    options = [option for option in TINY if option != "--no-report"]
    for stuck in (0.0, 9.0):  # so that the run's loss is surely above, then below it
        monkeypatch.setattr(checks, "STUCK", stuck)
        monkeypatch.setattr(checks, "AGREED", 0.0)
        assert main(["fit", str(photos), "-k", "3", "-o", "run", *options, "--overwrite"]) == 0
        assert (warned in capsys.readouterr().err) is (stuck == 0)
        assert ("The run is not healthy" in Path("run/report.html").read_text()) is (stuck == 0)


def test_a_run_without_a_page_has_a_verdict_all_the_same(
    photos: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("concurl.report.checks.STUCK", 0.0)  # so that the run's loss is surely above
    monkeypatch.setattr("concurl.report.checks.AGREED", 0.0)
    assert "--no-report" in TINY
    assert fit(photos) == 0
    warned = "do not rely on these clusters yet (clustering did not start); what to try is on the page that concurl report run"
    assert warned in capsys.readouterr().err
    assert main(["predict", "run", str(photos), "-o", "new.csv"]) == 0
    assert "do not rely on these labels yet (clustering did not start)" in capsys.readouterr().err


def test_quiet_is_for_the_terminal_and_the_log_keeps_all(
    photos: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "--quiet" in TINY
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert fit(photos) == 0
    said = capsys.readouterr().err
    assert "24 images for 3 clusters are few" in said  # a warning, as those of the watch that may follow
    assert not any(line.startswith(("read", "chose", "train", "map", "page")) for line in said.splitlines())
    log = Path("run/train.log").read_text()
    for line in ("chose stem = small: for images of 16 px", "training on ", "train: 6 of 6 steps", *said.splitlines()):
        assert line in log


def test_a_terminal_has_bars_and_the_log_has_lines(photos: Path) -> None:
    loud = [word for word in TINY if word != "--quiet"]
    terminal, end = pty.openpty()
    termios.tcsetwinsize(end, (24, 80))
    command = [sys.executable, "-m", "concurl", "fit", str(photos), "-k", "3", "-o", "run", *loud]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=end)
    os.close(end)
    shown = b""
    with suppress(OSError):  # as Linux says that nobody writes any more
        while some := os.read(terminal, 4096):
            shown += some
    os.close(terminal)
    assert run.wait() == 0
    assert b"train: 100%" in shown
    assert b"6 of 6 steps" not in shown
    assert " train: 6 of 6 steps, 0:00 left  loss " in Path("run/train.log").read_text()


def test_a_k_that_nobody_gave_is_said(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loud = [word for word in TINY if word != "--quiet"]
    assert main(["fit", str(photos), "-o", "run", *loud, "--cluster-start", "0.5"]) == 0
    chosen = "chose n_clusters = 10: the recipe's, whatever the images hold; give yours with -k"
    for said in (capsys.readouterr().err, Path("run/train.log").read_text()):
        assert chosen in said
    assert "n_clusters" not in str(json.loads(Path("run/run.json").read_text())["chosen"]), (
        "the images did not choose it"
    )
    for rest in (
        ["--resume", "-o", "run"],
        ["--from", "run", "-o", "other"],
        [str(photos), "-k", "10", "-o", "given", *loud],
    ):
        assert main(["fit", *rest, "--no-report"]) == 0
        assert "n_clusters" not in capsys.readouterr().err


@pytest.mark.parametrize("words", ["audit photos --quiet", "--help", "--version"])
def test_who_has_read_enough_hears_no_complaint(photos: Path, words: str) -> None:
    """`concurl audit PHOTOS | head`, with a head that reads nothing at all."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as unread:
        command = [sys.executable, "-m", "concurl", *words.split()]
        done = subprocess.run(command, stdout=unread, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_service_may_close_what_we_speak_to(photos: Path, closed: str) -> None:
    command = shlex.join([sys.executable, "-m", "concurl", "audit", str(photos), "-o", "files.csv"])
    done = subprocess.run(["sh", "-c", f"{command} {closed}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert len(rows("files.csv")) == 24


def test_pixels_that_were_decoded_before_are_said_to_be(photos: Path) -> None:
    for times, name in enumerate(("one", "two")):
        assert main(["fit", str(photos), "-k", "3", "-o", name, *TINY]) == 0
        assert Path(name, "train.log").read_text().count("packed copy in the cache") == times


def test_labelling_is_no_wait_without_a_word(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word for word in TINY if word != "--quiet"]
    assert main(["fit", str(photos), "-k", "3", "-o", "run", *words]) == 0
    Path("labels.csv").write_text("path,label\n00.png,a\n04.png,b\n")
    assert "label: 24 of 24 images" in capsys.readouterr().err
    for call in ("predict run photos -o all.csv", "evaluate run --labels labels.csv"):
        assert main(call.split()) == 0
        assert "label: 24 of 24 images" in capsys.readouterr().err, call


def test_what_the_files_are_is_said_before_training(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (photos / "notes.txt").write_text("40x")
    (photos / "copy.png").write_bytes((photos / "00.png").read_bytes())
    pages = [Image.effect_noise((16, 16), sigma) for sigma in (20, 40, 60)]
    pages[0].save(photos / "stack.tif", save_all=True, append_images=pages[1:])
    assert main(["audit", str(photos), "-o", "files.csv"]) == 0
    assert "\nfirst of several pages: the others are not looked at" in capsys.readouterr().out
    (stack,) = (row for row in rows("files.csv") if row["path"] == "stack.tif")
    assert stack["reason"] == "gray, first of several pages"
    loud = [word for word in TINY if word not in ("--quiet", "--preset", "small")]
    assert main(["fit", str(photos), "-k", "3", "-o", "run", *loud]) == 0
    for said in (capsys.readouterr().err, Path("run/train.log").read_text()):
        lines = said.splitlines()
        first = next(i for i, line in enumerate(lines) if line.endswith("bytes: 25 ok, 1 duplicate, 1 not an image"))
        kinds, odd, pages, where = lines[first + 1 : first + 5]
        assert kinds.endswith("formats: 24 PNG, 1 TIFF")
        assert "1 first of several pages" in odd
        assert "first of several pages: the others are not looked at" in pages
        assert where.endswith("run/skipped.csv")
        assert "chose preset = small: for images of 16 px (where nothing stands upright" in said


@pytest.mark.parametrize(("encoding", "name"), [("ascii", "März"), ("utf-8", os.fsdecode(b"M\xe4rz"))])
def test_a_name_that_the_terminal_cannot_show_is_no_error(photos: Path, encoding: str, name: str) -> None:
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    command = [sys.executable, "-m", "concurl", "pack", str(photos), "-o", name, "--quiet"]
    done = subprocess.run(command, capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"24 images packed: M\\")


def test_a_locale_that_cannot_spell_a_name_is_told_in_a_line(photos: Path) -> None:
    """Names in the cache are of whoever decoded them; a service may look them up in another locale."""
    (photos / "00.png").rename(photos / "gr\u00fcn.png")
    command = [sys.executable, "-m", "concurl", "fit", str(photos), "-k", "2", *TINY, "-o"]
    assert subprocess.run([*command, "run"]).returncode == 0
    ascii_only = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([*command, "other"], capture_output=True, text=True, env=ascii_only)
    assert done.returncode == 2
    assert done.stderr.startswith(
        "concurl: in this locale (ascii) the name of a file cannot be spelt; set PYTHONUTF8=1"
    )
    assert done.stderr.count("\n") == 1
