"""Many paths in little memory."""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from typing import overload


class Names(Sequence[str]):
    """Paths as one run of bytes, and where each of them ends: 8 bytes for each besides its letters; a str takes 60."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._ends = array("q")

    def append(self, name: str | bytes) -> None:
        self._bytes += os.fsencode(name)
        self._ends.append(len(self._bytes))

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return os.fsdecode(self.encoded(range(len(self))[index]))

    def encoded(self, place: int) -> bytes:
        """The name as bytes; `place` counts from 0."""
        return bytes(self._bytes[self._ends[place - 1] if place else 0 : self._ends[place]])
