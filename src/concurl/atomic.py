"""Files that appear under their names only when they are complete."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from concurl.errors import RunError, UserError

EX_IOERR = 74  # sysexits.h; the exit code for a full disk
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# The place is wrong, and not the disk. EEXIST is what a link to nothing gives where a folder is to be made.
UNUSABLE = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR),
    *(errno.EEXIST, errno.ENAMETOOLONG),
)


@contextmanager
def written_aside(path: Path, needed: int = 0, remedy: str = "") -> Iterator[IO[bytes]]:
    """Write next to `path`, sync, rename. After any failure `path` is as it was, and nothing else is left.

    needed: how many bytes the whole will take, for the message when the disk is full; remedy: as in `cannot_write`.
    """
    partial = path.with_name(f".{path.name}.partial")
    file: IO[bytes] | None = None
    try:
        file = _claimed(partial)
        yield file
        file.flush()
        os.fsync(file.fileno())
        os.replace(partial, path)
        sync_folder(path.parent)
    except BlockingIOError:
        raise UserError(f"{path}: another process is writing it; wait for it, or choose another name") from None
    except OSError as error:
        written = 0 if file is None else os.fstat(file.fileno()).st_size
        partial.unlink(missing_ok=True)
        raise cannot_write(error, path, needed, written, remedy) from error
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    finally:
        if file is not None:
            with suppress(OSError):  # what a full disk did not take is still in the buffer, and nobody wants it
                file.close()


def _claimed(partial: Path) -> IO[bytes]:
    """The partial file, empty and locked: two processes at one name would make a mixture of their files."""
    while True:
        # Opening must not empty it: another process may be writing it.
        file = open(os.open(partial, os.O_WRONLY | os.O_CREAT, 0o666), "wb")  # noqa: SIM115 (it is handed on)
        try:
            lock(file)
            if os.path.samestat(os.fstat(file.fileno()), os.stat(partial)):
                os.ftruncate(file.fileno(), 0)  # a kill may have left something
                return file
        except FileNotFoundError:
            pass
        except BaseException:
            file.close()
            raise
        file.close()  # another process renamed it between our opening and locking it: what we hold is its finished file


def lock(file: IO[Any]) -> None:
    """Lock it until it is closed; a BlockingIOError if another process holds it. Without effect where there are no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # the second is how a share may say it
        raise BlockingIOError from None
    except OSError:
        pass  # some network file systems have no locks


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


def cannot_write(error: OSError, path: Path, needed: int = 0, written: int = 0, remedy: str = "") -> Exception:
    """What to tell the user about a write that failed; `remedy` is told instead of choosing another folder."""
    if error.errno in FULL:
        return disk_full(path, needed, written, remedy)
    if error.errno in UNUSABLE:
        return UserError(f"cannot write {path}: {error.strerror}; {remedy or 'choose a folder that can be written to'}")
    return RunError(f"cannot write {path}: {error.strerror or error}", EX_IOERR)


def disk_full(path: Path, needed: int, written: int = 0, remedy: str = "") -> RunError:
    """What to tell the user when the disk is full; `needed` is 0 where the whole length is not known."""
    amount = f"{needed:,}" if needed else f"more than {written:,}"  # nobody knows how long a stream would have been
    other = remedy or "choose another folder"
    return RunError(f"no space left to write {path}: it needs {amount} bytes; free some, or {other}", EX_IOERR)


def sync_folder(folder: Path) -> None:
    """Without this the rename itself may be lost when the power fails. Without effect where folders cannot be synced."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # so say VirtualBox's shared folders, and some shares of a network
            raise
    finally:
        os.close(descriptor)


def rename_folder(folder: Path, target: Path) -> None:
    """Rename it; in a container, where a folder of the container's image cannot be renamed, copy it and remove it."""
    try:
        folder.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copytree(folder, target)
        shutil.rmtree(folder)
