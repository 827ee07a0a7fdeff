"""scikit-learn's own checks of an estimator.

They hand over rows of numbers, where ConCURL takes images. `Rows` stands between: it checks a table as scikit-learn's
validation does, scales it to [0, 1] and lays each row out as an 8 x 8 picture. All else is the estimator's own doing.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import validate_data

from concurl import ConCURL

OPTIONS = {
    "encoder": "tiny",
    "image_size": 8,
    "stem": "small",
    "preset": "none",
    "epochs": 6,  # after two, of 12 steps each, it is still chance whether each cluster has a label, which is asked for
    "batch_size": 4,
    "projector_hidden": 8,
    "projector_dim": 8,
    "cluster_hidden": 8,
    "embedding_dim": 8,
    "projection_dim": 4,
    "n_transforms": 3,
    "queue_size": 0,
    "head_init": "random",
    "device": "cpu",
}
EXCEPTIONS: dict[str, str] = {}


class Rows(ConCURL):
    """ConCURL on tables."""

    def __init__(self, n_clusters: int = 2, *, random_state: int = 0) -> None:
        super().__init__(n_clusters, options=OPTIONS, random_state=random_state)

    def fit(self, X: Any, y: Any = None) -> Self:
        X = validate_data(self, X, ensure_min_samples=4)
        self.low_, self.high_ = float(X.min()), float(X.max())
        asked, self.n_clusters = (
            self.n_clusters,
            max(2, self.n_clusters),
        )  # some checks ask for one: no clustering to us
        super().fit(self.pictures(X))
        self.n_clusters = asked
        return self

    def assign(self, X: Any) -> Any:
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "trained_")
        return super().assign(self.pictures(validate_data(self, X, reset=False)))

    def pictures(self, X: np.ndarray) -> np.ndarray:
        flat = np.zeros((len(X), 64))
        scale = max(self.high_ - self.low_, 1e-12)
        flat[:, : X.shape[1]] = np.clip((X[:, :64] - self.low_) / scale, 0, 1)
        return flat.reshape(-1, 8, 8)


@pytest.mark.slow
def test_scikit_learns_checks() -> None:
    assert len(EXCEPTIONS) <= 5
    found = check_estimator(Rows(), expected_failed_checks=EXCEPTIONS, on_fail=None, on_skip=None)
    failed = [(row["check_name"], repr(row["exception"])[:200]) for row in found if row["status"] == "failed"]
    print({status: sum(row["status"] == status for row in found) for status in {row["status"] for row in found}})
    assert failed == [], "\n".join(map(str, failed))
