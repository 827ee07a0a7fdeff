"""Which file had some content first, in little memory: 30 bytes a file, where a dict takes some 200."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class Firsts:
    """A hash table of fixed size over half of each SHA-256; 128 bits are never alike by chance.

    Only files of one size can be copies of each other: of all others nothing is remembered.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        values, counts = np.unique(np.asarray(sizes), return_counts=True)
        self._shared = values[counts > 1]
        slots = int(1.5 * counts[counts > 1].sum()) + 1
        self._digests = np.zeros((slots, 2), np.uint64)
        self._indices = np.zeros(slots, np.uint32)  # from 1; 0 is a free slot

    def first(self, size: int, sha: str, index: int) -> int:
        """The index of the first file with this content: `index` itself where there was none before."""
        place = int(np.searchsorted(self._shared, size))
        if place == len(self._shared) or self._shared[place] != size:
            return index
        high, low = int(sha[:16], 16), int(sha[16:32], 16)
        slots = len(self._indices)
        for step in range(slots):
            slot = (high + step) % slots
            found = int(self._indices[slot])
            if not found:
                self._digests[slot], self._indices[slot] = (high, low), index + 1
                return index
            if self._digests[slot, 0] == high and self._digests[slot, 1] == low:
                return found - 1
        return index  # full: since they were listed, more files have come to this size
