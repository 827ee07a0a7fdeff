"""Runs as a user starts them: `python -m concurl` in a process of its own, which can be killed, stopped and resumed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

OPTIONS = (  # for one that takes a fraction of a second, and still goes through all of the method
    "--encoder tiny --image-size 16 --preset small --batch-size 8 --projector-hidden 16 --projector-dim 8 "
    "--cluster-hidden 16 --embedding-dim 8 --projection-dim 4 --n-transforms 5 --queue-size 16 --codes-from target "
    "--cluster-start 0.3 --checkpoint-minutes 0.0005 --device cpu"
).split()
FIT = ["fit", "photos", "-k", "3", "-o", "run", "--epochs", "4", "--quiet", "--no-report", *OPTIONS]
RESULTS = ("assignments.csv", "embeddings.npy", "model/model.safetensors", "model/model.json", "summary.json")


def photos(folder: Path, n: int = 24) -> Path:
    """Pictures of three colours, with some noise."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i in range(n):
        pixels = np.zeros((16, 16, 3)) + 200 * np.eye(3)[i % 3] + rng.integers(0, 50, (16, 16, 3))
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i:03d}.png")
    return folder


class Warm:
    """The interpreter that forks (see warm.py); one run at a time."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("warm.py"))],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.orders = 0

    def order(self, **order: Any) -> int:
        assert self.process.stdin is not None
        self.orders += 1
        self.process.stdin.write(json.dumps(order) + "\n")
        return int(self.answer())

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class Run:
    """One process: a forked one, or without `warm` a new `python -m concurl`."""

    def __init__(self, *arguments: str, cwd: Path, warm: Warm | None = None, **environment: str) -> None:
        self.words = cwd / f".stderr-{time.monotonic_ns()}"
        environment = {"XDG_CACHE_HOME": str(cwd / "cache"), "OMP_NUM_THREADS": "1"} | environment
        self.code: int | None = None
        if warm is not None:
            order = {"arguments": arguments, "cwd": str(cwd), "environment": environment, "stderr": str(self.words)}
            self.pid = warm.order(**order)
            self._waiter = threading.Thread(target=lambda: self._ended(int(warm.answer())), daemon=True)
        else:
            command = [sys.executable, "-m", "concurl", *arguments]
            self.process = subprocess.Popen(  # in a session of its own: whatever it leaves behind can be found
                command,
                cwd=cwd,
                env=os.environ | environment,
                stdout=subprocess.DEVNULL,
                stderr=open(self.words, "wb"),  # noqa: SIM115 (the process has it)
                start_new_session=True,
            )
            self.pid = self.process.pid
            self._waiter = threading.Thread(target=self._wait, daemon=True)
        self._waiter.start()

    def _wait(self) -> None:
        code = self.process.wait()
        self._ended(-code if code < 0 else code << 8)

    def _ended(self, status: int) -> None:
        self.ended = time.monotonic()
        code = os.waitstatus_to_exitcode(status)
        self.code = code if code >= 0 else 128 - code  # as a shell shows it

    def await_line(self, text: str, seconds: float = 240) -> bool:
        """Has it said this? False if it ended before it did."""
        deadline = time.monotonic() + seconds
        while text not in self.stderr:
            if self.code is not None:
                return text in self.stderr
            assert time.monotonic() < deadline, f"no {text!r} in {self.stderr}"
            time.sleep(0.01)
        return True

    def send(self, number: int) -> bool:
        """False if it had ended before."""
        try:
            if self.code is None:
                os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return self.code is None

    def end(self, seconds: float = 240) -> int:
        self._waiter.join(seconds)
        assert self.code is not None, f"still running after {seconds} s: {self.stderr}"
        return self.code

    @property
    def stderr(self) -> str:
        try:
            return self.words.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def processes(self) -> list[int]:
        """Itself and those it has started."""
        return _session(self.pid)

    def left_behind(self, seconds: float = 3) -> list[int]:
        """Processes of its session that outlive it by more than `seconds`."""
        deadline = time.monotonic() + seconds
        while (found := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return found


def _session(leader: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(after_name[3]) == leader and after_name[0] != "Z":
                found.append(int(entry.name))
    return found


def results(run: Path) -> dict[str, Any]:
    """All that a finished run leaves, except for what the clock writes, and the page."""
    found: dict[str, Any] = {name: (run / name).read_bytes() for name in RESULTS[:-1]}
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found["metrics.jsonl"] = [{k: v for k, v in r.items() if k not in ("minutes", "images_per_second")} for r in rows]
    found["summary.json"] = json.loads((run / "summary.json").read_text()) | {"minutes": 0, "trouble": ""}
    return found


def half_files(folder: Path) -> list[str]:
    """What a finished or stopped program must not leave."""
    return [str(path) for path in folder.rglob("*") if path.name.endswith((".part", ".partial"))]
