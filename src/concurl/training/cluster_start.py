"""How clustering begins: cluster head, prototypes and queue are set from what BYOL has learned by then."""

from __future__ import annotations

import logging

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from concurl.config import Config
from concurl.data.batches import sample
from concurl.network.model import Model
from concurl.objective.kmeans import balanced_kmeans, spherical_kmeans
from concurl.objective.queue import EmbeddingQueue
from concurl.training.distributed import World
from concurl.training.monitor import Monitor

log = logging.getLogger("concurl")

IMAGES = 50_000  # at most, or one for each cluster: a seeded sample for k-means


@torch.no_grad()
def start_clustering(config: Config, model: Model, queue: EmbeddingQueue, monitor: Monitor, world: World) -> None:
    """Set head, prototypes and queue as the config says, to the same values on all ranks."""
    if config.head_init == "projector":  # z starts as v, which BYOL has trained, and not as a random mixture
        for branch in (model.online, model.target):
            branch.cluster_head.load_state_dict(branch.projector.state_dict())
    if config.prototype_init != "random" or config.queue_size:
        if world.leads:
            _set_from_sample(config, model, queue, monitor)
        world.broadcast(model.prototypes.data, queue.entries)


def _set_from_sample(config: Config, model: Model, queue: EmbeddingQueue, monitor: Monitor) -> None:
    """Place the prototypes by k-means, and fill the queue with the embeddings that k-means saw."""
    ids = sample(config.seed, len(monitor.images), max(IMAGES, config.n_clusters)).numpy()
    found = monitor.embeddings(model, ids, {"target", config.codes_from})
    if config.prototype_init != "random":
        centres, labels = spherical_kmeans(found["target"].z, config.n_clusters, seed=config.seed)
        _log_scores("k-means", monitor, ids, labels)
        if config.prototype_init == "balanced":
            centres, labels = balanced_kmeans(found["target"].z, centres, config.epsilon, config.balance)
            _log_scores("balanced k-means", monitor, ids, labels)
        model.prototypes.copy_(centres)
    z = found[config.codes_from].z
    # In random order, as batches are: the first images of a folder that is sorted by kind are all of one kind.
    mixed = torch.randperm(len(z), generator=torch.Generator().manual_seed(config.seed)).to(z.device)
    queue.fill(normalize(z[mixed], dim=1))


def _log_scores(what: str, monitor: Monitor, ids: NDArray[np.int64], labels: Tensor) -> None:
    """Say how good the first clusters are, where there are true labels to compare with."""
    if monitor.judge is not None:
        found = monitor.judge(ids, labels.cpu().numpy())
        log.info("%s where clustering begins: %s", what, ", ".join(f"{k} {x:.3f}" for k, x in found.items()))
