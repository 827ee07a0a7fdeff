"""Threads of torch's that wait soon go to sleep, and leave their core to other work; whoever knows better has the last word."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "PASSIVE"}, "0")],
)
@pytest.mark.parametrize("start", ["from concurl import ConCURL", "import concurl.cli, torch"])
def test_threads_that_wait_soon_sleep(start: str, given: dict[str, str], spins: str) -> None:
    inherited = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    said = subprocess.run(
        [sys.executable, "-c", start],
        env=inherited | {"OMP_DISPLAY_ENV": "VERBOSE"} | given,  # the runtime itself says what it goes by
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    found = [line.split("'")[1] for line in said.splitlines() if "GOMP_SPINCOUNT" in line]
    assert found
    assert set(found) == {spins}
