"""How much memory this process may still take: in a container, or under a limit, less than the machine has."""

from __future__ import annotations

import resource

# A container's, in version 2 and 1: the folder, the limit, what is used, and how much of that is files that nobody uses now.
_GROUPS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def free_host_memory() -> int:
    """Bytes: the least of what the machine, the container and the process's own limit (ulimit -v) have left."""
    found = [_number("/proc/meminfo", "MemAvailable", 1024)]
    for group, limit, used, files in _GROUPS:
        # Those files give way to whoever needs memory; after the images have been read, they may fill the whole container.
        held = _difference(_number(f"{group}/{used}"), _number(f"{group}/memory.stat", files) or 0)
        found.append(_difference(_number(f"{group}/{limit}"), held))
    space = resource.getrlimit(resource.RLIMIT_AS)[0]
    if space != resource.RLIM_INFINITY:
        found.append(_difference(space, address_space()))
    return min((bytes for bytes in found if bytes is not None), default=2**31)


def address_space() -> int | None:
    """Bytes that this process has mapped, used or not; None where nobody says (not Linux)."""
    return _number("/proc/self/status", "VmSize", 1024)


def _number(path: str, name: str = "", unit: int = 1) -> int | None:
    """The number after `name`, or the file's only one; None where there is none."""
    try:
        with open(path, encoding="ascii") as table:
            return next(
                int(line.removeprefix(name).strip(" :\t\nkB")) * unit for line in table if line.startswith(name)
            )
    except (OSError, ValueError, StopIteration):
        return None


def _difference(limit: int | None, used: int | None) -> int | None:
    return None if limit is None or used is None else max(0, limit - used)
