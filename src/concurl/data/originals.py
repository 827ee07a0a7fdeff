"""Some pictures of a set read again from their files: the packed copy of them is often too small to look at."""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from concurl.data.audit import inspect
from concurl.data.entry import find_entry
from concurl.data.imageset import ImageSet
from concurl.data.listing import Listing
from concurl.data.reading import Reading


def read_originals(images: ImageSet, rows: Iterable[int], side: int, reading: Reading) -> dict[int, NDArray[np.uint8]]:
    """The rows whose files show more than the set does, as (3, side, side); not those that cannot be read (any more)."""
    kept = min(images.images.shape[2:])
    if images.root is None or kept >= side:
        return {}
    root = os.fsencode(images.root)
    entries = {row: find_entry(root, os.fsencode(images.names[row])) for row in sorted(rows)}
    listing = Listing("", images.root, entries.values())
    found = zip(entries, inspect(listing, side, reading=reading, keep_duplicates=True), strict=True)
    return {row: pixels for row, (file, pixels) in found if pixels is not None and min(file.width, file.height) > kept}
