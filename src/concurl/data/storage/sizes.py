"""How large the images are, and at which size to work with them."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from statistics import median_low

from concurl.data.checking.examine import task_for
from concurl.data.checking.workers import Lost, ordered_map, worker_count
from concurl.data.files.listing import Listing
from concurl.data.files.shards import IMAGE_SUFFIXES

SIZES = (32, 48, 64, 96, 128, 160, 224)
_SAMPLE = 1000


def choose_size(sizes: Sequence[tuple[int, int]]) -> int:
    """The working size for images of these (width, height).

    It is the largest of SIZES that does not exceed the median shorter side, and at least 32: so at most half
    of the images have to be blown up.

    >>> choose_size([(640, 480), (100, 120), (130, 400)])
    128
    """
    shorter = median_low([min(size) for size in sizes]) if sizes else 0
    return max((size for size in SIZES if size <= shorter), default=SIZES[0])


def stored_size(image_size: int) -> int:
    """The side that images are kept at for views of `image_size`: large ones a little larger, as the usual
    evaluation resizes to 256 and takes the central 224."""
    return image_size if image_size <= 128 else round(image_size * 256 / 224)


def choose_side(sizes: Sequence[tuple[int, int]], largest: int | None = None) -> int:
    """The side to keep images of these sizes at, for a working size of at most `largest`."""
    return stored_size(min(choose_size(sizes), largest or SIZES[-1]))


def likely_images(listing: Listing) -> Sequence[int]:
    """What to take a sample of: the files that are called like images, or all where none is."""
    named = array("q", (i for i in range(len(listing)) if listing[i].name.lower().endswith(IMAGE_SUFFIXES)))
    return named or range(len(listing))


def measure_sizes(listing: Listing, workers: int | None) -> list[tuple[int, int]]:
    """(width, height) by the headers of up to 1,000 files, evenly spread over the listing."""
    chosen = likely_images(listing)
    step = max(1.0, len(chosen) / _SAMPLE)
    sample = [listing[chosen[int(i * step)]] for i in range(min(_SAMPLE, len(chosen)))]
    results = ordered_map(
        "concurl.data.checking.examine:measure",
        (task_for(entry, listing.root) for entry in sample),
        workers=worker_count(workers, len(sample)),
    )
    return [tuple(json.loads(found)) for found in results if found and not isinstance(found, Lost)]
