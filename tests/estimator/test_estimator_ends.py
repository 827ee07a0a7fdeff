"""Options at the ends of their ranges: a run goes through all of the method, and what it says of an image stays true."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from concurl import ConCURL

OPTIONS = {
    **{"encoder": "tiny", "stem": "small", "image_size": 8, "preset": "small", "epochs": 2, "batch_size": 16},
    **{"projector_hidden": 16, "cluster_hidden": 16, "projector_dim": 8, "embedding_dim": 8, "learning_rate": 0.02},
    **{"n_transforms": 4, "projection_dim": 4, "cluster_start": 0.4, "prototype_init": "balanced"},
    **{"head_init": "projector", "codes_from": "target", "queue_size": 16, "device": "cpu"},
}
ENDS: dict[str, dict[str, Any]] = {
    "two clusters": {"n_clusters": 2},
    "as many clusters as images": {"n_clusters": 40},
    "one member": {"n_transforms": 1},
    "members that see one direction": {"projection_dim": 1},
    "members that see all": {"projection_dim": 8},
    "members that scale": {"transforms": "diagonal"},
    "L1 alone": {"beta": 0.0, "gamma": 0.0},
    "L1 alone, v narrower than a projection": {"beta": 0.0, "gamma": 0.0, "head_init": "random", "projector_dim": 2},
    "L2 alone": {"alpha": 0.0, "gamma": 0.0},
    "L3 alone": {"alpha": 0.0, "beta": 0.0},
    "two images in a batch": {"batch_size": 2, "epochs": 1},
    "one image in a part": {"batch_size": 2, "micro_batch": 1, "epochs": 1},
    "all images in a batch": {"batch_size": 40},
    "a queue shorter than a batch": {"queue_size": 3},
    "clusters in the last step": {"cluster_start": 1.0},
    "clusters from the first step": {"cluster_start": 0.0, "cluster_lr": 0.1},
    "a ramp as long as the run": {"cluster_ramp": 1.0},
    "a warm-up as long as the run": {"warmup": 1.0},
    "no balance": {"balance": 0.0},
    "the hardest codes": {"epsilon": 1e-4},
    "the softest codes": {"epsilon": 100.0},
    "the hardest assignments": {"tau": 1e-4},
    "a target that follows at once": {"tau_b": 0.0},
    "a target that stays": {"tau_b": 1.0},
    "no momentum": {"optimizer": "sgd", "momentum": 0.0},
    "a sample of two": {"monitor_images": 2},
}


@pytest.mark.parametrize("end", ENDS)
def test_at_the_end_of_a_range(end: str) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
    images[:20] //= 3
    options = {**OPTIONS, **ENDS[end]}
    K, M = options.pop("n_clusters", 3), options["n_transforms"]
    model = ConCURL(K, options=options).fit(images)
    for row in model.history_:
        numbers = np.hstack([value for value in row.values() if value is not None])
        assert np.isfinite(numbers).all()
    np.testing.assert_array_equal(model.predict(images), model.labels_)
    alone = np.concatenate([model.predict(image[None]) for image in images[::13]])
    np.testing.assert_array_equal(alone, model.labels_[::13])
    assert set(model.labels_) <= set(range(K))
    np.testing.assert_allclose(model.probabilities_.sum(1), 1, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(model.embeddings_, axis=1), 1, atol=1e-5)
    assert ((model.confidence_ > 0) & (model.confidence_ <= 1 + 1e-6)).all()
    np.testing.assert_allclose(M * model.agreement_, np.round(M * model.agreement_), atol=1e-5)
