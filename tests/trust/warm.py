"""A warm interpreter that forks a process for each run: a kill then costs what it hits, and not three seconds of imports.

What is forked has imported the package and done nothing with it; from there on it is `concurl` as anyone starts it.
Orders come as lines of json on stdin; answered are the process's id, at once, and its wait status, at its end.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from typing import Any


def serve() -> None:
    preload()
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(order)
        print(child, flush=True)
        print(os.waitpid(child, 0)[1], flush=True)


def preload() -> None:
    """All that a run imports sooner or later: of a small one's time that is most."""
    for name in ("concurl.commands.fit", "concurl.commands.predict", "concurl.report", "concurl.runs.run"):
        importlib.import_module(name)
    for name in ("torch._dynamo", "sklearn.cluster", "sklearn.metrics", "openTSNE"):
        importlib.import_module(name)


def _become(order: dict[str, Any]) -> None:
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    os.chdir(order["cwd"])
    os.environ.update(order["environment"])
    words = os.open(order["stderr"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor, target in ((nothing, 0), (nothing, 1), (words, 2)):
        os.dup2(descriptor, target)
    sys.argv = ["concurl", *order["arguments"]]  # not given to main: it is to know that the process is its own
    from concurl.cli import main

    try:
        code = main()
    except SystemExit as exit:
        code = int(exit.code or 0)
    os._exit(code)


if __name__ == "__main__":
    serve()
