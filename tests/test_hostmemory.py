"""The memory that is left is that of the container, where there is one."""

from __future__ import annotations

import pytest

from concurl.hostmemory import free_host_memory

VERSION_2 = ("memory.max", "memory.current", "memory.stat inactive_file")
VERSION_1 = (
    "memory/memory.limit_in_bytes",
    "memory/memory.usage_in_bytes",
    "memory/memory.stat total_inactive_file",
)


@pytest.mark.parametrize("files", [VERSION_2, VERSION_1])
def test_it_is_what_the_machine_and_the_container_have_left(
    files: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, used, cached = (f"/sys/fs/cgroup/{file}" for file in files)
    found = {"/proc/meminfo MemAvailable": 1000, limit: 300, used: 100}
    monkeypatch.setattr("concurl.hostmemory._number", lambda path, name="", _=1: found.get(f"{path} {name}".strip()))
    assert free_host_memory() == 200
    found[used] = 400
    assert free_host_memory() == 0
    found[cached] = 250  # pages of files that were read: they give way
    assert free_host_memory() == 150
    found[limit] = 2**62  # version 1 has a number where there is no limit
    assert free_host_memory() == 1000
    found.clear()  # another system: a cautious guess
    assert free_host_memory() == 2**31
