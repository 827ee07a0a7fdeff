"""From the start of a process to its first optimiser step: without compilation, with it, and for the second time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from typing import Any

from concurl.config import Config
from timing import about


def start_rows(config: Config) -> list[dict[str, Any]]:
    """Each start is a new process; the compile cache is empty for the second and full for the third."""
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        for form, how in (("plain", "off"), ("compiled, first", "on"), ("compiled, again", "on")):
            seconds = _first_step_after(config.replace(compile=how), cache)
            rows.append({"group": "start", "form": form, **about(config), "first_step_s": seconds})
    return rows


def _first_step_after(config: Config, cache: str) -> float:
    started = time.time()
    child = subprocess.run(
        [sys.executable, __file__, json.dumps(asdict(config))],
        env=os.environ | {"TORCHINDUCTOR_CACHE_DIR": cache},
        stdout=subprocess.PIPE,
        check=True,
    )
    return float(child.stdout) - started


def main() -> None:
    """In the child: take one step of `config`, print the time of day."""
    import torch

    from forms import build

    float(build(Config(**json.loads(sys.argv[1])), "step")()[0])  # fetching the loss waits for the step
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    print(time.time())


if __name__ == "__main__":
    main()
