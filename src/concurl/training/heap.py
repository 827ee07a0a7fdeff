"""What malloc does with the memory that a step on a CPU frees: it is kept for the next step, which needs just as much.

By default glibc returns large pieces to the system as soon as they are free, and gets them back in the next step page by page,
each page filled with zeros: a tenth to a sixth of a step's time.
"""

from __future__ import annotations

import ctypes
import os

# The names and numbers of malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
LARGEST_PIECE = 2**25  # bytes: glibc takes no more, and arrives there by itself once such a piece has been freed
KEPT = 2**31 - 1  # bytes: the largest number that mallopt takes
_CHOSEN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")  # the user's own settings, which glibc obeys


def keep_freed_memory() -> None:
    """For the whole process, until `return_freed_memory`; nothing happens where malloc is not glibc's."""
    if (mallopt := _glibc("mallopt")) is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGEST_PIECE)
        mallopt(_M_TRIM_THRESHOLD, KEPT)


def return_freed_memory() -> None:
    """Return to the system what has been kept; from now on, keep as little as glibc does after such work by default."""
    mallopt, trim = _glibc("mallopt"), _glibc("malloc_trim")
    if mallopt is not None and trim is not None:
        mallopt(_M_TRIM_THRESHOLD, 2 * LARGEST_PIECE)
        trim(0)


def _glibc(function: str) -> ctypes._NamedFuncPointer | None:
    if any(name in os.environ for name in _CHOSEN):
        return None
    found: ctypes._NamedFuncPointer | None = getattr(ctypes.CDLL(None), function, None)
    return found
