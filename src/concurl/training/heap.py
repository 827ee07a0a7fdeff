"""What malloc does with the memory that a step on a CPU frees: it is kept for the next step, which needs just as much.

By default glibc returns large pieces to the system as soon as they are free, and gets them back in the next step page by page,
each page filled with zeros: a tenth to a quarter of a step's time.
"""

from __future__ import annotations

import ctypes
import os

# The names and numbers of malloc.h, and what glibc has for them by default once large pieces have been freed.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4
_DEFAULTS = {_M_MMAP_MAX: 65_536, _M_MMAP_THRESHOLD: 2**25, _M_TRIM_THRESHOLD: 2**26}
_CHOSEN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_")  # by the user: left as they are


def keep_freed_memory() -> None:
    """For the whole process, until `return_freed_memory`; nothing happens where malloc is not glibc's."""
    if (mallopt := _glibc("mallopt")) is not None:
        mallopt(_M_MMAP_MAX, 0)  # or pieces from 32 MiB on would still go back
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def return_freed_memory() -> None:
    """Return to the system what has been kept, and keep no more from now on than glibc does by default."""
    mallopt, trim = _glibc("mallopt"), _glibc("malloc_trim")
    if mallopt is not None and trim is not None:
        for number, value in _DEFAULTS.items():
            mallopt(number, value)
        trim(0)


def _glibc(function: str) -> ctypes._NamedFuncPointer | None:
    if any(name in os.environ for name in _CHOSEN):
        return None
    found: ctypes._NamedFuncPointer | None = getattr(ctypes.CDLL(None), function, None)
    return found
