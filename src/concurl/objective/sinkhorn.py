"""Codes Q: the balanced soft assignments of eq. 4, by Sinkhorn-Knopp in the log domain.

The solution of eq. 4 is q_i = softmax_k(s_ik / epsilon + u_k): one number u_k per cluster carries all that the
images of the batch (or of the whole set) say about one another. That is why the K log-scalings are returned
too: kept with the model they turn the code of a single image into a function of that image alone.

Eq. 4 demands clusters of equal share. With balance < 1 it only asks: the constraint becomes a penalty, lambda times the
Kullback-Leibler divergence of the shares from equal ones, with lambda = epsilon * balance / (1 - balance). Its solution has
the same form, each iteration taking `balance` times the step (unbalanced optimal transport); at 0 no image sees another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

LogReduce = Callable[[Tensor], Tensor]
"""x -> log of the sum of exp(x) over all processes."""


@torch.no_grad()
def sinkhorn(
    scores: Tensor,  # (..., B, K): <z_i, c_k>; tables side by side are balanced each on its own
    epsilon: float,
    iterations: int,
    *,
    balance: float = 1.0,  # 1: clusters of equal share, as in the paper; 0: as they come
    log_reduce: LogReduce | None = None,  # None: one process
) -> tuple[Tensor, Tensor]:
    """Codes q (..., B, K), rows summing to 1, and the log-scalings u (..., K).

    Each iteration first sets the clusters' shares to 1 / K, then every row's sum to 1: SwAV's fast
    version. Logarithms keep it finite where exp(s / epsilon) overflows: float16 at 0.05, float32 at 0.01.
    """
    s = scaled(scores, epsilon)
    u = s.new_zeros(*s.shape[:-2], 1, s.shape[-1])
    v = s.new_zeros(*s.shape[:-1], 1)
    for _ in range(iterations):
        shares = torch.logsumexp(s + v, dim=-2, keepdim=True)
        u = balance * (-math.log(s.shape[-1]) - (shares if log_reduce is None else log_reduce(shares)))
        v = -torch.logsumexp(s + u, dim=-1, keepdim=True)
    q, u = torch.softmax(s + u, dim=-1), u.squeeze(-2)
    return q, u - u.mean(-1, keepdim=True)  # q does not see a shift common to all clusters


@torch.no_grad()
def streaming_scalings(
    chunks: Callable[[], Iterable[Tensor]],  # each call runs once over all scores, in parts of (n, K)
    epsilon: float,
    *,
    iterations: int = 1000,
    tolerance: float = 1e-6,
    balance: float = 1.0,
    log_reduce: LogReduce | None = None,
) -> Tensor:
    """The log-scalings u (K,) of a whole set that need not fit in memory: only K numbers are kept.

    Stops when no scaling moves by more than `tolerance`; in full balance every cluster's share is then right to that part.
    """
    u: Tensor | None = None
    for _ in range(iterations):
        shares: Tensor | None = None
        for part in chunks():
            s = scaled(part, epsilon)
            u = s.new_zeros(s.shape[1]) if u is None else u
            mass = torch.logsumexp(torch.log_softmax(s + u, dim=1), dim=0)
            shares = mass if shares is None else torch.logaddexp(shares, mass)
        if shares is None or u is None:
            raise ValueError("no scores were given")
        if log_reduce is not None:
            shares = log_reduce(shares)
        before, u = u, balance * (u - shares)
        u = u - u.mean()
        if float((u - before).abs().max()) < tolerance:
            break
    assert u is not None, "iterations must be at least 1"
    return u


def scaled(scores: Tensor, epsilon: float) -> Tensor:
    """s / epsilon in float32 or better: half precision cannot hold it."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32)) / epsilon
