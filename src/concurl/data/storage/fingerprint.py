"""Are these the images that the run began with?"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

_MOST = 2**28  # bytes: read within a second


def fingerprint(images: NDArray[np.uint8]) -> str:
    """A hash of the pixels, of an even sample of them where there are too many to read."""
    found = hashlib.sha256(repr(images.shape).encode())
    for image in images[:: max(1, -(-images.nbytes // _MOST))]:
        found.update(np.ascontiguousarray(image).data)
    return found.hexdigest()
