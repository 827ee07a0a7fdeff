"""Files that appear under their names only when they are complete."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from concurl.errors import RunError, UserError

EX_IOERR = 74  # sysexits.h; the exit code for a full disk
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def written_aside(path: Path, needed: int = 0) -> Iterator[IO[bytes]]:
    """Write next to `path`, sync, rename. After any failure `path` is as it was, and nothing else is left.

    needed: how many bytes the whole will take, for the message when the disk is full.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with open(partial, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        sync_folder(path.parent)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise cannot_write(error, path, needed) from error
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_whole(path: Path, content: bytes) -> None:
    """A small file in one go: aside, synced, renamed."""
    with written_aside(path, len(content)) as file:
        file.write(content)


def write_synced(path: Path, content: bytes) -> None:
    """For files in a folder that is itself renamed when it is whole."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def cannot_write(error: OSError, path: Path, needed: int = 0) -> Exception:
    """What to tell the user about a write that failed."""
    if error.errno in FULL:
        return disk_full(path, needed)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR):
        return UserError(f"cannot write {path}: {error.strerror}; choose a folder that can be written to")
    return RunError(f"cannot write {path}: {error.strerror or error}", EX_IOERR)


def disk_full(path: Path, needed: int) -> RunError:
    amount = f"it needs {needed:,} bytes; " if needed else ""
    return RunError(f"no space left to write {path}: {amount}free some, or choose another folder", EX_IOERR)


def sync_folder(folder: Path) -> None:
    """Without this the rename itself may be lost when the power fails."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
