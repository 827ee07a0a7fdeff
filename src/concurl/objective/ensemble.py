"""The ensemble: M fixed random transformations A, and the soft assignments p~ of its members (section II-C)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize


def draw_transforms(
    kind: Literal["projection", "diagonal"], n_transforms: int, embedding_dim: int, projection_dim: int, seed: int
) -> Tensor:
    """The M transformations: projections (M, projection_dim, dim) with orthonormal rows, or diagonals (M, dim).

    NOTE: the paper's rows are Gaussian "such that they are orthogonal", of unknown length. Here their length is 1.
    """
    generator = torch.Generator().manual_seed(seed)
    if kind == "diagonal":
        # NOTE: the paper only says "randomly generated diagonal matrix". Uniform on [0, 1] is from CACTUs, which it cites.
        return torch.rand(n_transforms, embedding_dim, generator=generator)
    gauss = torch.randn(n_transforms, embedding_dim, projection_dim, generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(gauss)  # q: (M, dim, projection_dim), orthonormal columns
    # QR chooses the signs by a rule of its own. With r's diagonal made positive, all directions are equally likely.
    q = q * torch.sign(torch.diagonal(r, dim1=1, dim2=2)).unsqueeze(1)
    rows: Tensor = q.transpose(1, 2).float().contiguous()
    return rows


def transform(A: Tensor, x: Tensor) -> Tensor:
    """A x for all members: (n, dim) -> (M, n, projection_dim), or (M, n, dim) for diagonals."""
    if A.dim() == 2:
        return A.unsqueeze(1) * x
    m, d_out, d = A.shape
    # One (M * projection_dim, dim) x (dim, n) product instead of M small ones.
    return (A.reshape(m * d_out, d) @ x.t()).view(m, d_out, len(x)).mT


def log_assignments(z: Tensor, C: Tensor, tau: float) -> Tensor:
    """log p of eq. 3: z (..., B, dim) and C (..., K, dim) give (..., B, K).

    The z of all members together are large. To normalise them would be to write them all once more, so their products
    with C are divided by their norms instead. Images come last in memory, as they mostly outnumber the clusters.
    """
    z = z.float().mT  # (..., dim, B)
    norms = z.square().sum(-2, keepdim=True).clamp_min(1e-24).sqrt()  # (..., 1, B); not 0, where a root has no gradient
    scores = normalize(C.float(), dim=-1) @ z  # (..., K, B)
    return torch.log_softmax(scores / (tau * norms), dim=-2).mT


def ensemble_log_assignments(z: Tensor, C: Tensor, A: Tensor, tau: float) -> Tensor:
    """log p~ of all members: z (B, dim) and C (K, dim) give (M, B, K)."""
    return log_assignments(transform(A, z), transform(A, C), tau)


def soft_vote(z: Tensor, C: Tensor, A: Tensor, tau: float) -> Tensor:
    """The ensemble's mean probabilities (B, K): the members share the prototypes' indices, so nothing need be matched."""
    return ensemble_log_assignments(z, C, A, tau).exp().mean(0)


def diversity(votes: Tensor, n_clusters: int) -> tuple[float, float]:
    """Mean and standard deviation of the pairwise NMI of the members (section III-B); votes (M, N) are cluster indices.

    Near 0 the ensemble is diverse; at 1 all members agree. Memory grows with M N and does not depend on K.
    """
    m = len(votes)
    if m < 2:
        return 1.0, 0.0
    h = _entropies(votes)
    rows = []
    for i in range(m - 1):
        h_i, h_j = h[i], h[i + 1 :]
        mutual = h_i + h_j - _entropies(votes[i] * n_clusters + votes[i + 1 :])
        scale = torch.sqrt(h_i * h_j)
        # Two members that put everything into one cluster agree fully, though both entropies are 0.
        single = (h_i + h_j < 1e-12).double()
        rows.append(torch.where(scale > 1e-12, mutual / scale.clamp_min(1e-12), single))
    pairs = torch.cat(rows)
    return float(pairs.mean()), float(pairs.std(unbiased=False))


def _entropies(labels: Tensor) -> Tensor:
    """The entropy of the labels in each row, (R, N) -> (R,), from the lengths of the runs in the sorted row."""
    n = labels.shape[1]
    ordered = labels.sort(dim=1).values
    begins = torch.ones_like(ordered, dtype=torch.bool)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    places = begins.flatten().nonzero()[:, 0]  # every row begins a new run, so none spans two rows
    lengths = torch.diff(places, append=places.new_tensor([begins.numel()])).double()
    # Each at its own place, because index_add on a GPU adds in a different order each time.
    terms = torch.zeros(labels.numel(), dtype=torch.float64, device=labels.device)
    terms[places] = torch.xlogy(lengths, lengths)
    return math.log(n) - terms.view(labels.shape).sum(1) / n
