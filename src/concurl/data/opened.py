"""One way to open whatever the user names: a benchmark, files on disk, or arrays."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Any

from concurl.data.benchmarks import BENCHMARKS, load_benchmark
from concurl.data.imageset import ImageSet, Opened
from concurl.data.pictures.reading import OWN, Reading
from concurl.data.sources import read_source
from concurl.data.storage.sizes import stored_size
from concurl.errors import UserError
from concurl.progress import Stages


def open_source(
    source: Any,
    *,
    data_dir: Path | None = None,
    image_size: int | None = None,
    reading: Reading = OWN,
    limit: int | None = None,
    cache: Path | None = None,
    workers: int | None = None,
    each_given: bool = False,
    largest: int | None = None,
    progress: Stages | None = None,
) -> Opened:
    """A benchmark by its name (write ./digits for a folder of that name), else a path, list or array.

    each_given: a row for each file that was given, copies too, and a list in its own order. The rest: see `read_source`.
    """
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
    if each_given:
        images = images.each_given()
    if limit is not None and limit < len(images):  # an array, or a list that names files more than once
        from concurl.data.batches import sample  # it imports torch, which takes long: only where it is needed

        chosen = sample(0, len(images), limit).numpy()
        names = [images.names[i] for i in chosen]
        images = ImageSet(images.images[chosen], names, images.skipped, summary=images.summary, root=images.root)
    return Opened(images)
