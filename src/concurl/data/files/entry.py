"""One file that a source means: where it lies, not yet what is in it."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

PathLike = str | os.PathLike[str]


class Entry(NamedTuple):
    """A file of its own, or a member of a tar shard."""

    name: bytes  # below the source's root, or absolute
    size: int
    mtime_ns: int  # a member has its shard's
    shard: int = 0  # how much of the name is the shard's; 0 for a file of its own
    start: int = 0  # where a member's bytes begin
    fault: str = ""  # why it cannot be read, where that is known already

    @property
    def text(self) -> str:
        """The name as text; bytes that are no UTF-8 become surrogates, and os.fsencode gives them back."""
        return os.fsdecode(self.name)

    def path(self, root: str) -> str:
        """The file to open. (An absolute name wins over the root.)"""
        return os.path.join(root, os.fsdecode(self.name[: self.shard] if self.shard else self.name))


def find_entry(root: bytes, name: bytes) -> Entry:
    """The entry of a file of its own. What cannot be read gets an entry too: every file has its row."""
    try:
        found = os.stat(os.path.join(root, name))
    except OSError as error:
        link = os.path.islink(os.path.join(root, name)) and isinstance(error, FileNotFoundError)
        return Entry(name, 0, 0, fault="a link to nothing" if link else error.strerror or str(error))
    except ValueError:
        return Entry(name, 0, 0, fault="no file can have this name")
    if stat.S_ISDIR(found.st_mode):
        return Entry(name, 0, 0, fault="a folder, where a file was expected")
    if not stat.S_ISREG(found.st_mode):
        return Entry(name, 0, 0, fault="not a regular file")
    return Entry(name, found.st_size, found.st_mtime_ns)
