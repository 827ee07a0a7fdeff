"""The whole way without a network: everything works, and nothing tries to reach it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from user_runs import OPTIONS, photos

# Every interpreter of the flow, workers included, starts with this: audit hooks see what no patch of a class can miss.
WATCH = """
import os, sys
def watch(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "urllib.Request"):
        with open(os.environ["WATCHED"], "a") as file:
            file.write(f"{event} {arguments}\\n")
sys.addaudithook(watch)
"""
FLOW = """
from concurl.cli import main
for arguments in {verbs}:
    assert main(arguments) == 0, arguments
"""
VERBS = [
    ["fit", "photos", "-k", "3", "-o", "run", "--epochs", "1", "--workers", "2", "--quiet", *OPTIONS],
    ["predict", "run", "photos", "-o", "new.csv", "--quiet"],
    ["export", "run", "--folders", "copy", "-o", "folders"],
    ["export", "run", "--model", "-o", "model.pt2"],
    ["report", "run", "--quiet"],
    ["audit", "photos", "--quiet"],
]


def environment(where: Path) -> dict[str, str]:
    (where / "watch").mkdir(exist_ok=True)
    (where / "watch" / "sitecustomize.py").write_text(WATCH)
    paths = [str(where / "watch"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "WATCHED": str(where / "watched.txt"),
        "XDG_CACHE_HOME": str(where / "cache"),
        "HOME": str(where),
    }


def test_the_whole_way_without_a_network(tmp_path: Path) -> None:
    photos(tmp_path / "photos")
    cut_off = (
        ["unshare", "-rn"] if subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode == 0 else []
    )
    command = [*cut_off, sys.executable, "-c", FLOW.format(verbs=VERBS)]
    done = subprocess.run(command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "report.html").exists()
    assert not (tmp_path / "watched.txt").exists(), (tmp_path / "watched.txt").read_text()


def test_the_watch_sees_a_connection(tmp_path: Path) -> None:
    """Else the test above would show nothing."""
    attempt = "import socket; s = socket.socket(); s.settimeout(0.1); s.connect_ex(('127.0.0.1', 9))"
    subprocess.run([sys.executable, "-c", attempt], env=environment(tmp_path), check=True)
    assert "socket.connect" in (tmp_path / "watched.txt").read_text()
