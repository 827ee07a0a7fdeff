"""SIGKILL at random moments, resume, and again: what comes out is what an undisturbed run gives, to the byte."""

from __future__ import annotations

import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from user_runs import OPTIONS, Run, Warm, photos, results

VARIANTS = {
    "adam": ["--optimizer", "adam"],
    "sgd": ["--optimizer", "sgd", "--prototype-init", "kmeans", "--schedule", "cosine", "--tau-b-end", "1"],
}


@dataclass
class Tally:
    runs: int = 0
    kills: int = 0
    in_training: int = 0
    identical: int = 0
    damaged: int = 0


def torture(where: Path, warm: Warm, *, runs: int, kills: int, seed: int, epochs: int) -> Tally:
    """At least so many runs with so many kills in all."""
    dice, tally = random.Random(seed), Tally()
    photos(where / "photos")
    wanted, each = {}, -(-kills // runs)
    for name, more in VARIANTS.items():
        whole = Run(*fit(f"whole-{name}", epochs, more), cwd=where, warm=warm)
        whole.await_line("training on")
        begun = time.monotonic()
        assert whole.end() == 0, whole.stderr
        seconds = whole.ended - begun
        wanted[name] = results(where / f"whole-{name}")
    while tally.runs < runs or tally.kills < kills:
        variant = list(VARIANTS)[tally.runs % len(VARIANTS)]
        run = f"run-{tally.runs}"
        arguments = fit(run, epochs, VARIANTS[variant])
        here = 0
        while True:
            going = Run(*arguments, cwd=where, warm=warm)
            if here < each:
                if dice.random() < 0.9:  # the others fall wherever they fall
                    going.await_line("training on")
                    time.sleep(dice.uniform(0, 2 * seconds / each))
                else:
                    time.sleep(dice.uniform(0, 1))
                going.send(signal.SIGKILL)
            code = going.end()
            tally.damaged += "damaged" in going.stderr
            if code == 0:
                break
            assert code == 128 + signal.SIGKILL, going.stderr
            here += 1
            tally.in_training += "training on" in going.stderr
            if (where / run / "config.json").exists():
                arguments = ["fit", "--resume", "-o", run, "--no-report"]
        tally.runs += 1
        tally.kills += here
        assert results(where / run) == wanted[variant], f"{run} ({variant}) after {here} kills"
        tally.identical += 1
        print(tally, flush=True)
    return tally


def fit(run: str, epochs: int, more: list[str]) -> list[str]:
    return ["fit", "photos", "-k", "3", "-o", run, "--epochs", str(epochs), "--no-report", *OPTIONS, *more]


def test_a_few_kills(tmp_path: Path, warm: Warm) -> None:
    tally = torture(tmp_path, warm, runs=2, kills=6, seed=1, epochs=8)
    assert tally.damaged == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_hundred_kills_over_twenty_runs(tmp_path: Path, warm: Warm) -> None:
    tally = torture(tmp_path, warm, runs=20, kills=200, seed=2, epochs=8)
    assert tally.identical == tally.runs >= 20
    assert tally.kills >= 200
    assert tally.damaged == 0
