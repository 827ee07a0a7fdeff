"""Processes for work that may go wrong: each has a memory cap and a time limit, and may die without harm.

They are started as plain interpreters, not by multiprocessing, which would run the user's script again in each of
them. They are sent bytes and answer in bytes, never in pickles: a decoder that a hostile image has taken over can say
something wrong about that image, and nothing else.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait

from concurl.cores import usable_cores
from concurl.errors import RunError
from concurl.hostmemory import address_space

SECONDS = 120.0  # a task; the slowest picture within the caps takes 3, on a machine that has nothing else to do
MEMORY = 2 * 2**30  # a worker, on top of what the interpreter takes
_QUEUED = 4  # tasks per worker: enough that none waits for the next one
_AHEAD = 32  # results per worker that may wait for an earlier one
_START_SECONDS = 120.0
_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[2]); "
    "from concurl.data.checking.workers import serve; serve(int(sys.argv[1]))"
)


@dataclass(frozen=True)
class Lost:
    """A task that killed its worker, or held it up for too long."""

    reason: str


def worker_count(asked: int | None, tasks: int) -> int:
    """Every core this process may use, unless asked otherwise; 0 means none but this process."""
    return min(usable_cores() if asked is None else asked, tasks)


def ordered_map(
    function: str, tasks: Iterable[bytes], *, workers: int, seconds: float = SECONDS, memory: int = MEMORY
) -> Iterator[bytes | Lost]:
    """function(task) for each task, in their order. `function` is "module:name", from bytes to bytes.

    A worker that dies gets a second chance with the same task, as it may have died of something else.
    With workers=0 everything happens here, without protection.
    """
    if workers == 0:
        yield from map(_found(function), tasks)
        return
    waiting = enumerate(tasks)
    results: dict[int, bytes | Lost] = {}
    given = taken = 0
    crew: list[_Worker] = []
    try:
        for _ in range(workers):  # one by one: an interruption here must find those that already run
            crew.append(_Worker(function, seconds, memory))
        for worker in crew:
            worker.await_start()
        while True:
            for worker in sorted(crew, key=lambda worker: len(worker.queue)):
                while len(worker.queue) < _QUEUED and given - taken < _AHEAD * workers:
                    if (task := next(waiting, None)) is None:
                        break
                    worker.give(*task)
                    given += 1
            if taken == given:
                return
            busy = {worker.connection: worker for worker in crew if worker.queue}
            soonest = min(worker.deadline for worker in busy.values())
            ready = wait(list(busy), timeout=max(0.0, soonest - time.monotonic()))
            for connection, worker in busy.items():
                if connection in ready:
                    results.update(worker.collect())
                elif time.monotonic() > worker.deadline:
                    results.update(worker.give_up())
            while taken in results:
                yield results.pop(taken)
                taken += 1
    finally:
        for worker in crew:
            worker.stop()


class _Worker:
    """One process, and the tasks it has been given."""

    def __init__(self, function: str, seconds: float, memory: int) -> None:
        self.function, self.seconds, self.memory = function, seconds, memory
        self.queue: deque[tuple[int, bytes]] = deque()
        self.suspect = -1  # the task during which the last process died
        self.deadline = 0.0
        self._start()

    def _start(self) -> None:
        self.connection, theirs = Pipe()
        with theirs:
            try:
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _BOOT, str(theirs.fileno()), json.dumps(sys.path)],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    env={**os.environ, "OMP_NUM_THREADS": "1"},
                    process_group=0,  # Ctrl-C goes to the whole group; here the parent decides
                )
            except OSError as error:  # not of the file that is being written meanwhile, as it would be taken for
                self.connection.close()
                raise RunError(f"an image worker did not start ({error.strerror}): try again with workers=0") from error
        self.connection.send_bytes(json.dumps([self.function, self.memory]).encode())

    def await_start(self) -> None:
        try:
            if self.connection.poll(_START_SECONDS):
                self.connection.recv_bytes()
                return
        except (EOFError, OSError):
            pass
        raise RunError(f"an image worker did not start (exit code {self._end()}): try again with workers=0")

    def give(self, index: int, task: bytes) -> None:
        if not self.queue:
            self.deadline = time.monotonic() + self.seconds
        self.queue.append((index, task))
        self._send(task)

    def _send(self, task: bytes) -> None:
        with suppress(OSError):  # it has died: collect will notice
            self.connection.send_bytes(task)

    def collect(self) -> dict[int, bytes | Lost]:
        """The next result; nothing, or a Lost, if the process has died."""
        try:
            result = self.connection.recv_bytes()
        except (EOFError, OSError):
            code = self._end()
            index, _ = self.queue[0]
            if index != self.suspect:
                self.suspect = index
                self._restart()
                return {}
            name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            return self._lose(f"the decoder crashed ({name})")
        index, _ = self.queue.popleft()
        self.deadline = time.monotonic() + self.seconds
        return {index: result}

    def give_up(self) -> dict[int, bytes | Lost]:
        self.stop()
        return self._lose(f"it took more than {self.seconds:g} s")

    def _lose(self, reason: str) -> dict[int, bytes | Lost]:
        index, _ = self.queue.popleft()
        self._restart()
        return {index: Lost(reason)}

    def _restart(self) -> None:
        self._start()
        self.await_start()
        for _, task in self.queue:
            self._send(task)
        self.deadline = time.monotonic() + self.seconds

    def _end(self) -> int:
        self.connection.close()
        try:
            self.process.wait(1)  # a process that is dying anyway ends with its own exit code
        except subprocess.TimeoutExpired:
            self.process.kill()
        return self.process.wait()

    def stop(self) -> None:
        self.process.kill()
        self._end()


def serve(descriptor: int) -> None:
    """The worker's side: answer tasks until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # when to stop is the parent's business
    connection = Connection(descriptor)
    try:
        name, memory = json.loads(connection.recv_bytes())
        function = _found(name)
        _confine(memory)
        connection.send_bytes(b"ready")
        while True:
            connection.send_bytes(function(connection.recv_bytes()))
    except (EOFError, OSError):
        pass  # the parent has gone


def _found(function: str) -> Callable[[bytes], bytes]:
    module, name = function.split(":")
    found: Callable[[bytes], bytes] = getattr(importlib.import_module(module), name)
    return found


def _confine(memory: int) -> None:
    # libtiff and libjpeg complain on stderr about every odd file; the row says it better.
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    for limit, value in (
        (resource.RLIMIT_AS, (address_space() or 2**30) + memory),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),  # a decoder has nothing to write
    ):
        _, hard = resource.getrlimit(limit)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))
