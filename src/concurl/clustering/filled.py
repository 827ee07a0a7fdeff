"""Tables of N rows that come part by part."""

from __future__ import annotations

from torch import Tensor, empty


class Filled:
    """Each column is made once, on the CPU, and filled as its parts come: joined at the end, all would be held twice."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.columns: dict[str, Tensor] = {}
        self._next = 0

    def add(self, **parts: Tensor) -> None:
        """The next rows of every column, from whatever device."""
        end = self._next + len(next(iter(parts.values())))
        for name, part in parts.items():
            if name not in self.columns:
                self.columns[name] = empty((self.rows, *part.shape[1:]), dtype=part.dtype)
            self.columns[name][self._next : end].copy_(part)
        self._next = end
