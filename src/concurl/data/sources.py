"""What the user hands over -> images: a benchmark, a folder, glob, list, csv, tar shards, paths, pictures, or an array."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from concurl.data.arrays import as_numpy, is_array, read_array, read_pictures
from concurl.data.benchmarks import BENCHMARKS, load_benchmark
from concurl.data.files.listing import Listing, list_source
from concurl.data.imageset import ImageSet, Opened
from concurl.data.pictures.reading import OWN, Reading
from concurl.data.storage.reader import read_listing
from concurl.data.storage.sizes import likely_images, stored_size
from concurl.data.storage.store import default_folder
from concurl.errors import UserError
from concurl.progress import Stages, silent


def open_source(
    source: Any,
    *,
    data_dir: Path | None = None,
    image_size: int | None = None,
    reading: Reading = OWN,
    limit: int | None = None,
    cache: Path | None = None,
    workers: int | None = None,
    largest: int | None = None,
    progress: Stages = silent,
) -> Opened:
    """A benchmark by its name (write ./digits for a folder of that name), else a path, list or array: see `read_source`."""
    size = None if image_size is None else stored_size(image_size)
    if isinstance(source, str) and source in BENCHMARKS:
        return load_benchmark(source, data_dir, image_size=size, limit=limit, progress=progress)
    if isinstance(source, str) and not os.path.lexists(source):
        near = difflib.get_close_matches(source.lower(), BENCHMARKS, n=1)
        if near:
            raise UserError(f"{source}: neither a path nor a benchmark; did you mean {near[0]}?")
    images = read_source(
        source, size, cache=cache, workers=workers, progress=progress, reading=reading, largest=largest, limit=limit
    )
    return Opened(images)


def read_source(
    source: Any,
    size: int | None = None,
    *,
    cache: Path | None = None,
    workers: int | None = None,
    progress: Stages = silent,
    reading: Reading = OWN,
    largest: int | None = None,
    limit: int | None = None,
) -> ImageSet:
    """All usable images of `source`, sorted by the bytes of their names; the other files are in `skipped`, with reasons.

    Copies count as one image. Where the files as they were given differ from the images, they are in `given`.

    size: the side to keep them at. None: from the images' own sizes (see `choose_size`).
    cache: the folder for the packed copy (see store.py); None for $XDG_CACHE_HOME/concurl.
    workers: processes that decode; None for one per core, 0 to decode in this one, without their protection.
    largest: the largest working size that may be chosen where `size` is None.
    limit: read only so many of the files, a fixed sample, each once. An array is taken whole.
    """
    if is_array(source):
        return read_array(source, size)
    if not isinstance(source, str | os.PathLike):
        source = _items(source)
        if source and all(isinstance(item, Image.Image) for item in source):
            return read_pictures(source, size, largest, reading)
        if source and not all(isinstance(item, str | os.PathLike) for item in source):
            return read_array(_stacked(source), size)
    elif source == "":  # it would be the current folder
        raise _no_source(source)
    folder = default_folder() if cache is None else Path(cache)
    listing = list_source(source, exclude=[folder], cache=folder)
    more: dict[str, Any] = {}
    if limit is not None and limit < len(listing if listing.listed is None else listing.listed):
        listing, more = _sample(listing, limit), {"limit": limit}
    return read_listing(
        listing, size, folder, reading=reading, workers=workers, progress=progress, largest=largest, **more
    )


def _items(source: Iterable[Any]) -> list[Any]:
    if isinstance(source, Mapping) or hasattr(source, "columns"):  # a table would give its headings
        raise _no_source(source)
    try:
        return list(source)
    except TypeError:
        raise _no_source(source) from None


def _sample(listing: Listing, limit: int) -> Listing:
    from concurl.data.batches import sample  # it imports torch, which takes long: only where it is needed

    likely = likely_images(listing)
    chosen = (listing[likely[i]] for i in sample(0, len(likely), limit).tolist())
    return Listing(listing.source, listing.root, chosen)


def _no_source(source: object) -> UserError:
    given = repr(source) if isinstance(source, str) else type(source).__name__
    return UserError(f"{given} given as images: a folder, a list of paths or pictures, or an array is needed")


def _stacked(items: list[Any]) -> NDArray[Any]:
    """A list of arrays or tensors of one shape."""
    if not all(is_array(item) for item in items):
        kinds = ", ".join(sorted({type(item).__name__ for item in items}))
        raise UserError(f"a list of {kinds}: paths, pictures, or arrays of one shape, are needed")
    arrays = [as_numpy(item) for item in items]
    shapes = sorted({array.shape for array in arrays})
    if len(shapes) > 1:
        raise UserError(f"a list of arrays of shapes {shapes[0]} and {shapes[1]}: resize them to one shape")
    return np.stack(arrays)
