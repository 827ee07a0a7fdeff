"""A training that goes through all of the method, for the tests of several ranks."""

from __future__ import annotations

import pytest

from concurl.config import Config


@pytest.fixture(scope="module")
def config(tiny) -> Config:
    """50 steps of everything: L1 alone at first, then k-means, a copied head, L2, L3, a queue; Adam."""
    return tiny(
        batch_size=20,
        epochs=10,
        cluster_start=0.3,
        prototype_init="kmeans",
        head_init="projector",
        embedding_dim=12,
        projector_dim=12,
        queue_size=50,
        preset="small",
        monitor_images=50,
    )
