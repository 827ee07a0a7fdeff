"""Images to fit on, and an estimator that is fitted: once for each file of tests."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from concurl import ConCURL


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.asarray(load_digits().images[:300] / 16)


@pytest.fixture(scope="module")
def fitted(images: np.ndarray) -> ConCURL:
    return ConCURL(10, recipe="digits", options={"epochs": 1}).fit(images)
