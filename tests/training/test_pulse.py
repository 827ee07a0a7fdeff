"""When ranks talk: all at the same steps, though their clocks and signals differ."""

from __future__ import annotations

import threading
import time

from concurl.training.distributed import World
from concurl.training.pulse import Pulse


class Pair(World):
    """Two ranks in two threads, without a network."""

    meeting = threading.Barrier(2, timeout=20)
    said: list[tuple[int, ...]] = []  # noqa: RUF012

    def agree(self, *values: int) -> list[int]:
        self.said.append(values)
        self.meeting.wait()
        largest = [max(column) for column in zip(*self.said[-2:], strict=True)]
        self.meeting.wait()
        return largest


def test_alone_it_answers_at_once():
    pulse = Pulse(World())
    assert pulse.agreed(3, None, False) == (None, False)
    assert pulse.agreed(3, 15, True) == (15, True)


def test_a_signal_to_one_rank_stops_both_at_one_step():
    stops: dict[int, int] = {}

    def live(rank: int) -> None:
        pulse = Pulse(Pair(rank, 2))
        for step in range(1, 10_000):
            asked, due = pulse.agreed(step, 15 if rank == 1 and step > 40 else None, False)
            assert not due
            if asked is not None:
                assert asked == 15
                stops[rank] = step
                return

    threads = [threading.Thread(target=live, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert stops[0] == stops[1] > 40


def test_a_checkpoint_is_due_for_all_when_it_is_for_one():
    found: dict[int, tuple[int | None, bool]] = {}

    def ask(rank: int) -> None:
        found[rank] = Pulse(Pair(rank, 2)).agreed(1, None, rank == 0)

    threads = [threading.Thread(target=ask, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == {0: (None, True), 1: (None, True)}


class Talkative(World):
    """Notes when it was asked; the others have nothing to add."""

    def __init__(self) -> None:
        super().__init__(0, 2)
        self.asked: list[tuple[int, ...]] = []

    def agree(self, *values: int) -> list[int]:
        self.asked.append(values)
        return list(values)


def test_ranks_talk_about_once_a_second_however_long_a_step_takes(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    pulse = Pulse(world := Talkative())
    talked = []
    for step, seconds in enumerate([1 / 8] * 33 + [4.0] * 3, start=1001):  # as in a run that was resumed
        clock[0] += seconds
        pulse.agreed(step, None, False)
        if len(world.asked) > len(talked):
            talked.append(step)
    assert talked == [1001, 1002, 1010, 1018, 1026, 1034, 1035, 1036]
