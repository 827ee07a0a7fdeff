"""The two ways a run ends that are not bugs: the user must change something, or the machine gave out."""

from __future__ import annotations

import difflib
import os
import shlex
from pathlib import Path


class UserError(ValueError):
    """Wrong input. The message is one line that names the value and the remedy; the command line exits with 2."""


class RunError(RuntimeError):
    """The run cannot go on (disk full, diverged loss). The command line exits with `exit_code`."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def no_such(path: str | Path) -> UserError:
    """The answer to a path that is not there; it suggests the name nearby that was probably meant."""
    if "://" in str(path):
        return UserError(f"{path}: nothing is downloaded; fetch it first, and name the file or folder")
    head, name = os.path.split(os.path.normpath(path))
    try:
        there = os.listdir(head or ".")
    except OSError:
        there = []
    near = [one for one in there if one.lower() == name.lower()] or difflib.get_close_matches(name, there, n=1)
    hint = f"did you mean {os.path.join(head, near[0])}?" if near else "check the path"
    return UserError(f"{path}: no such file or folder; {hint}")


def call(*words: object) -> str:
    """A concurl command that can be pasted into a shell, even if a folder's name holds spaces."""
    return shlex.join(["concurl", *map(str, words)])


def said_by(error: BaseException) -> str:
    """The first line of another library's error, short enough for a line of ours; its kind if it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def one_line(message: object) -> str:
    """Made safe for a terminal: a name may hold line breaks, or sequences that the terminal would obey."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(message))
