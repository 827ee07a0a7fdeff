"""How many cores this process may use: in a container, or under SLURM, fewer than the machine has."""

from __future__ import annotations

import math
import os
from pathlib import Path

CONTROL_GROUP = Path("/sys/fs/cgroup")  # as a container sees its own


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
    try:
        time, period = (group / "cpu.max").read_text().split()
    except (OSError, ValueError):  # version 1 of the control groups
        try:
            time, period = ((group / "cpu" / f"cpu.cfs_{what}_us").read_text() for what in ("quota", "period"))
        except OSError:
            return math.inf
    try:
        cores = float(time) / float(period)
    except (ValueError, ZeroDivisionError):  # "max": no limit
        return math.inf
    return cores if cores > 0 else math.inf  # -1: no limit
