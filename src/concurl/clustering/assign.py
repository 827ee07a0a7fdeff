"""From a trained model to labels and confidences, which depend on the image alone and never on its batch.

The paper labels by the argmax of q, which is balanced over many images: alone, or among others, an image would get another
label. Here the balance is found once, over the whole training set, and its K log-scalings u are kept with the model:
label = argmax_k(<z, c_k> / epsilon + u_k).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from concurl.config import Config
from concurl.network.embed import embed
from concurl.network.model import Model
from concurl.network.trained import TrainedModel
from concurl.objective.ensemble import draw_transforms, ensemble_log_assignments
from concurl.objective.kmeans import spherical_kmeans
from concurl.objective.sinkhorn import streaming_scalings

Floats = NDArray[np.float32]
Advance = Callable[[int], object]  # told how many more images are done
UNSURE = 0.5  # an image is "unsure" if a smaller share of the members agrees with its label
FETCH = 32  # chunks of embeddings that are fetched from the device at once
NUMBERS_CPU, NUMBERS_GPU = 2**21, 2**24  # how many of the members' projections or scores are held at once
BRANCHES = ("y_theta", "v_theta", "w_theta", "z", "y_xi", "v_xi")


@dataclass(frozen=True)
class Assignment:
    """Everything the model says about N images."""

    labels: NDArray[np.int64]  # (N,) argmax of the codes
    probabilities: Floats  # (N, K) the codes q
    p_labels: NDArray[np.int64]  # (N,) argmax of p, without any balancing
    vote: Floats  # (N, K) the soft vote: mean of the members' p~
    agreement: Floats  # (N,) share of the M members whose own argmax is the label
    member_votes: Floats  # (K, K): of the members' votes on images labelled i, the share for cluster j
    outlier: Floats  # (N,) (1 - cos) / 2 to the nearest prototype, from 0 to 1
    embeddings: Floats  # (N, dim) unit embeddings: z, or v_xi where only BYOL was trained
    branches: dict[str, Floats]  # further embeddings, by their names in BRANCHES

    @property
    def vote_labels(self) -> NDArray[np.int64]:
        """The ensemble's first choice."""
        labels: NDArray[np.int64] = self.vote.argmax(1)
        return labels

    @property
    def confidence(self) -> Floats:
        """The ensemble's probability for the label."""
        return np.take_along_axis(self.vote, self.labels[:, None], 1)[:, 0]

    @property
    def margin(self) -> Floats:
        """By how much the ensemble prefers its first choice to its second."""
        top = np.partition(self.vote, -2, axis=1)
        return top[:, -1] - top[:, -2]


def unfinished(config: Config, model: Model, A: Tensor, autocast: torch.dtype | None) -> TrainedModel:
    """A model that can embed images, but not label them yet."""
    space: Literal["z", "v_xi"] = "z" if config.clusters else "v_xi"
    return TrainedModel(config, model, space, model.prototypes.detach(), A, torch.zeros(config.n_clusters), autocast)


def balanced(draft: TrainedModel, x: Tensor) -> TrainedModel:
    """The model that labels: balanced over all images that it was trained on, whose unit embeddings are x (N, dim).

    For BYOL alone there is nothing to balance: the centres are found by k-means.
    NOTE: the paper does not say which k-means. Ours is spherical: BYOL's loss compares unit vectors, too.
    """
    config, model, A, K = draft.config, draft.model, draft.A, draft.config.n_clusters
    if draft.space == "z":
        centres = normalize(model.prototypes.detach().cpu(), dim=1)
        # The scores are computed again in each pass: to keep them would take 8 K bytes per image. Small parts fit the caches.
        u = streaming_scalings(
            lambda: (part.double() @ centres.double().t() for part in torch.split(x, 2**12)),
            config.epsilon,
            balance=config.balance,
        )
    else:
        centres = spherical_kmeans(x.to(model.prototypes.device), K, seed=config.seed)[0].cpu()
        u = torch.zeros(K)
        if x.shape[1] != config.embedding_dim:  # the members project v_xi, which may differ from z in dimension
            dim = min(config.projection_dim, x.shape[1])
            A = draw_transforms(config.transforms, config.n_transforms, x.shape[1], dim, config.seed)
    return dataclasses.replace(draft, centres=centres, A=A.cpu(), scalings=u.float())


def assign(
    trained: TrainedModel, images: NDArray[np.uint8], *, branches: tuple[str, ...] = (), advance: Advance | None = None
) -> Assignment:
    """Label images (N, 3, H, W) with a finished model; `branches` names further embeddings to return."""
    x, kept = embeddings(trained, images, branches=branches, advance=advance)
    return assign_embeddings(trained, x, kept)


def embeddings(
    trained: TrainedModel, images: NDArray[np.uint8], *, branches: tuple[str, ...] = (), advance: Advance | None = None
) -> tuple[Tensor, dict[str, Floats]]:
    """Unit embeddings (N, dim) in the model's space, on the CPU, and the branches asked for."""
    if not len(images):
        return torch.zeros(0, trained.centres.shape[1]), {}
    branch = {name: "target" if name.endswith("_xi") else "online" for name in {trained.space, *branches}}
    outputs = embed(
        trained.model,
        images,
        image_size=trained.image_size,
        sobel=trained.config.sobel,
        autocast=trained.autocast,
        branches=set(branch.values()),  # a label needs only one of the two
    )
    chunks = ({name: getattr(output[branch[name]], name[0]) for name in branch} for output in outputs)
    fetched = _Columns(len(images))
    while some := list(islice(chunks, FETCH)):  # the device stands still for each fetch
        found = {name: torch.cat([chunk[name] for chunk in some]) for name in branch}
        fetched.add(unit=normalize(found[trained.space], dim=1), **{name: found[name] for name in branches})
        if advance is not None:
            advance(len(found[trained.space]))
        del some, found  # or the device would hold them while the next ones are computed
    return fetched.filled["unit"], {name: fetched.filled[name].numpy() for name in branches}


def scores_and_codes(x: Tensor, centres: Tensor, u: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """<e, c_k> in float64 and q in float32, (n, K) each, of unit embeddings x (n, dim). The label is the argmax of this q.

    Scores are rounded: the last bits of a product depend on the batch's shape, and would decide between equal centres.
    """
    scores = (x.double() @ centres.double().t()).round(decimals=10)
    return scores, torch.softmax(scores / epsilon + u.double(), dim=1).float()


@torch.no_grad()
def assign_embeddings(trained: TrainedModel, x: Tensor, branches: dict[str, Floats] | None = None) -> Assignment:
    """Labels and confidences from unit embeddings (N, dim)."""
    c, K = trained.config, trained.config.n_clusters
    device = trained.model.prototypes.device  # a hundred members are work for a GPU, if there is one
    C, A, u = (t.detach().to(device) for t in (trained.centres, trained.A, trained.scalings))
    found = _Columns(len(x))
    member_votes = torch.zeros(K, K, dtype=torch.float64, device=device)
    numbers = len(A) * max(K, A.shape[1])  # of one image: the larger of all members' projections and scores
    most = NUMBERS_GPU if device.type == "cuda" else NUMBERS_CPU
    for part in torch.split(x, max(1, most // numbers)):
        part = part.to(device)
        scores, q = scores_and_codes(part, C, u, c.epsilon)
        labels = q.argmax(1)
        members = ensemble_log_assignments(part, C, A, c.tau)  # (M, n, K)
        ballots = members.argmax(2) + K * torch.arange(len(part), device=device)  # (M, n): K places per image
        votes = torch.bincount(ballots.flatten(), minlength=len(part) * K).view(-1, K) / len(members)
        member_votes.index_add_(0, labels, votes.double())
        agreement = votes.gather(1, labels[:, None])[:, 0]
        outlier = (1 - scores.max(1).values).clamp_min(0) / 2
        found.add(
            labels=labels,
            probabilities=q,
            p_labels=scores.argmax(1),
            vote=members.exp_().mean(0),
            agreement=agreement,
            outlier=outlier.float(),
        )
    shares = member_votes / member_votes.sum(1, keepdim=True).clamp_min(1e-12)
    return Assignment(
        **{name: column.numpy() for name, column in found.filled.items()},
        member_votes=shares.float().cpu().numpy(),
        embeddings=x.numpy(),
        branches=branches or {},
    )


class _Columns:
    """A table of N rows that come part by part. Each column is allocated once, on the CPU, and then filled.

    To join the parts at the end would need the memory twice.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.filled: dict[str, Tensor] = {}
        self._next = 0

    def add(self, **parts: Tensor) -> None:
        """The next rows of every column, from any device."""
        end = self._next + len(next(iter(parts.values())))
        for name, part in parts.items():
            if name not in self.filled:
                self.filled[name] = torch.empty((self.rows, *part.shape[1:]), dtype=part.dtype)
            self.filled[name][self._next : end].copy_(part)
        self._next = end
