"""Workers that crash, hang, eat memory, or lose their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from concurl.atomic import written_aside
from concurl.cores import usable_cores
from concurl.data.checking.workers import Lost, ordered_map, worker_count
from concurl.errors import RunError

FUNCTION = """
import os, signal, sys, time
from pathlib import Path

def work(task):
    word = task.decode()
    if word == "exit":
        os._exit(3)
    if word == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if word == "hang":
        time.sleep(600)
    if word == "hog":
        try:
            return b"%d" % len(bytearray(2**30))
        except MemoryError:
            return b"refused"
    if word.startswith("once "):  # dies, but not twice
        mark = Path(word[5:])
        if not mark.exists():
            os.mkdir(mark)
            os._exit(9)
    if word.startswith("write "):
        try:
            with open(word[6:], "w") as file:
                file.write("x")
        except OSError:
            return b"refused"
    if word == "torch":
        return str("torch" in sys.modules).encode()
    if word == "pid":
        return str(os.getpid()).encode()
    if word.startswith("slow"):
        time.sleep(0.05)
    return task.upper()
"""


@pytest.fixture(autouse=True)
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "worker_functions.py").write_text(FUNCTION)
    monkeypatch.syspath_prepend(tmp_path)


def run(words: Sequence[str], workers: int = 2, seconds: float = 30.0) -> list[bytes | Lost]:
    tasks = (word.encode() for word in words)
    return list(ordered_map("worker_functions:work", tasks, workers=workers, seconds=seconds, memory=2**28))


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_order_and_completeness(workers: int) -> None:
    words = [f"{'slow' if i % 7 == 0 else 'word'}{i}" for i in range(300)]
    assert run(words, workers) == [word.upper().encode() for word in words]


def test_a_crash_costs_one_task() -> None:
    words = [f"word{i}" for i in range(40)]
    words[5], words[17], words[39] = "exit", "segfault", "exit"
    results = run(words)
    assert results[5] == Lost("the decoder crashed (exit code 3)")
    assert results[17] == Lost("the decoder crashed (SIGSEGV)")
    assert isinstance(results[39], Lost)
    others = [i for i in range(40) if i not in (5, 17, 39)]
    assert [results[i] for i in others] == [words[i].upper().encode() for i in others]


def test_a_death_that_does_not_repeat_costs_nothing(tmp_path: Path) -> None:
    word = f"once {tmp_path / 'mark'}"
    assert run(["a", word, "b"]) == [b"A", word.upper().encode(), b"B"]


def test_a_hanging_task_is_given_up() -> None:
    start = time.monotonic()
    results = run(["a", "hang", "b", "c"], seconds=1.0)
    assert results == [b"A", Lost("it took more than 1 s"), b"B", b"C"]
    assert time.monotonic() - start < 20


def test_a_slow_consumer_is_not_taken_for_a_hanging_task() -> None:
    results = []
    for result in ordered_map("worker_functions:work", [b"a"] * 12, workers=2, seconds=0.5, memory=2**28):
        results.append(result)
        if len(results) == 2:
            time.sleep(1.5)
    assert results == [b"A"] * 12


def test_limits(tmp_path: Path) -> None:
    assert run(["hog", f"write {tmp_path / 'file'}", "torch"]) == [b"refused", b"refused", b"False"]


def test_no_worker_outlives_the_map() -> None:
    results = ordered_map("worker_functions:work", [b"pid"] * 50, workers=2)
    pids = {int(next(results)) for _ in range(10)}  # type: ignore[arg-type]
    assert pids.isdisjoint({os.getpid()})
    results.close()  # type: ignore[attr-defined]
    assert not any(is_alive(pid) for pid in pids)


def test_no_worker_outlives_a_killed_parent(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from concurl.data.checking.workers import ordered_map\n"
        "for result in ordered_map('worker_functions:work', iter(lambda: b'pid', None), workers=2):\n"
        "    print(result.decode(), flush=True)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = {int(next(parent.stdout)) for _ in range(20)}
        parent.kill()
    deadline = time.monotonic() + 5
    while any(is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(is_alive(pid) for pid in pids)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_script_without_a_main_guard(tmp_path: Path) -> None:
    """multiprocessing would run it again in each worker, and so for ever."""
    script = tmp_path / "script.py"
    script.write_text(
        "from concurl.data.checking.workers import ordered_map\n"
        "print(list(ordered_map('worker_functions:work', [b'a', b'b'], workers=2)))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[b'A', b'B']\n"
    assert done.stderr == ""


def test_interrupts_are_the_parents_business() -> None:
    results = ordered_map("worker_functions:work", [b"pid", *[b"slow"] * 10, b"pid"], workers=1)
    pid = next(results)
    os.kill(int(pid), signal.SIGINT)  # type: ignore[arg-type]
    assert list(results) == [b"SLOW"] * 10 + [pid]


def test_workers_that_cannot_start_are_reported() -> None:
    with pytest.raises(RunError, match="workers=0"):
        list(ordered_map("no_such_module:work", [b"a"], workers=1))


def test_a_process_that_the_system_refuses_is_no_fault_of_the_file_in_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path))
    with pytest.raises(RunError, match=r"did not start \(Permission denied\)"), written_aside(tmp_path / "packed"):
        list(ordered_map("worker_functions:work", [b"a"], workers=1))


def test_worker_count() -> None:
    assert worker_count(None, 10**6) == usable_cores()
    assert worker_count(0, 5) == 0
    assert worker_count(8, 3) == 3
