"""How many cores this process may use: in a container, or under SLURM, fewer than the machine has."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path

CONTROL_GROUP = Path("/sys/fs/cgroup")  # as a container sees its own
_LIMITS = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))  # time and period, in version 2 and 1


def usable_cores() -> int:
    """At least 1."""
    usable = getattr(os, "sched_getaffinity", None)
    cores = len(usable(0)) if usable else os.cpu_count() or 1
    return max(1, math.ceil(min(cores, _quota(CONTROL_GROUP))))


def _quota(group: Path) -> float:
    """The processor time that the group may use, as a number of cores; infinite without a limit.

    `docker --cpus` and a pod's limit hide no cores. With threads on all of them, the time allowed for each tenth of a
    second would be used up early, and everything would stand still for the rest of it.
    """
    for files in _LIMITS:
        with suppress(OSError, ValueError, ZeroDivisionError):  # no such files, or "max": no limit
            time, period = map(float, " ".join((group / file).read_text() for file in files).split())
            return time / period if time > 0 else math.inf  # -1: no limit
    return math.inf
