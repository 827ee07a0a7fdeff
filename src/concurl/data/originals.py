"""Some pictures of a set read again from their files: the packed copy of them is often too small to look at."""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from concurl.data.checking.audit import inspect
from concurl.data.files.entry import find_entry
from concurl.data.files.listing import Listing
from concurl.data.imageset import ImageSet
from concurl.data.pictures.decode import resized
from concurl.data.pictures.reading import Reading


def read_originals(images: ImageSet, rows: Iterable[int], side: int, reading: Reading) -> dict[int, NDArray[np.uint8]]:
    """The rows whose files show more than the set does, as (3, S, S): their own size, but at most `side`.

    Not those that cannot be read (any more), nor the members of tar shards.
    """
    kept = min(images.images.shape[2:])
    if images.root is None or kept >= side:
        return {}
    root = os.fsencode(images.root)
    entries = {row: find_entry(root, os.fsencode(images.names[row])) for row in sorted(rows)}
    listing = Listing("", images.root, entries.values())
    found = {}
    for row, (file, pixels) in zip(entries, inspect(listing, side, reading=reading, keep_duplicates=True), strict=True):
        own = min(file.width, file.height)
        if pixels is not None and own > kept:
            found[row] = pixels if own >= side else _smaller(pixels, own)
    return found


def _smaller(pixels: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Without the pixels that decoding has made up: they would cost the page as much as real ones."""
    return np.asarray(resized(Image.fromarray(pixels.transpose(1, 2, 0)), side)).transpose(2, 0, 1)
