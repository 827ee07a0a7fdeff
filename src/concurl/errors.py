"""The two ways a run ends that are not bugs: the user must change something, or the machine gave out."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

# What torch, the CUDA libraries and oneDNN say where Python has MemoryError.
_MEMORY = re.compile("can't allocate memory|out of memory|ALLOC_FAILED|could not create a primitive$")


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
    if os.path.islink(path):
        return UserError(f"{path}: a link to {os.readlink(path)}, which is not there; is its disk mounted?")
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


def tells_of_memory(error: BaseException) -> bool:
    """Is it for want of memory?"""
    return any(isinstance(cause, MemoryError) or _MEMORY.search(str(cause)) for cause in causes(error))


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what led to it: if memory runs out while a CUDA graph is recorded, that ends in another error."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def one_line(message: object) -> str:
    """Made safe for a terminal: a name may hold line breaks, or sequences that the terminal would obey."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(message))
