"""scikit-learn's handwritten digits: 1,797 real images that come with a dependency."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CLASSES = tuple("0123456789")


def read_digits() -> tuple[NDArray[np.uint8], NDArray[np.int64], list[str]]:
    """Images (1797, 3, 8, 8), labels and names. The publisher's gray runs from 0 to 16."""
    from sklearn.datasets import load_digits  # slow to import, and only this set needs it

    digits = load_digits()
    gray = np.rint(digits.images * (255 / 16)).astype(np.uint8)  # (N, 8, 8)
    images = np.repeat(gray[:, None], 3, axis=1)
    return images, digits.target.astype(np.int64), [f"digits/all/{i:05d}" for i in range(len(images))]
