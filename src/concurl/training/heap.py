"""What malloc does with the memory that a step on a CPU frees: it is kept for the next step, which needs just as much.

By default glibc returns large pieces to the system as soon as they are free, and gets them back in the next step page by page,
each page filled with zeros: a tenth to a quarter of a step's time.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

# The names and numbers of malloc.h, and what glibc has for them by default once large pieces have been freed.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4
_KEEP = {_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: 2**31 - 1}
_DEFAULTS = {_M_MMAP_MAX: 65_536, _M_MMAP_THRESHOLD: 2**25, _M_TRIM_THRESHOLD: 2**26}
_CHOSEN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_")  # by the user: left as they are


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Within the block, for the whole process; then what was kept goes back. Nothing happens if malloc is not glibc's."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt") or any(name in os.environ for name in _CHOSEN):
        yield
        return
    for number, value in _KEEP.items():
        libc.mallopt(number, value)
    try:
        yield
    finally:
        for number, value in _DEFAULTS.items():
            libc.mallopt(number, value)
        libc.malloc_trim(0)
