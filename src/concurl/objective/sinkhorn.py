"""Codes q: the balanced soft assignments of eq. 4, by Sinkhorn-Knopp in the log domain.

The solution of eq. 4 is q_i = softmax_k(s_ik / epsilon + u_k). All that the images of a batch (or of the whole set) tell
about one another is in the K log-scalings u. Kept with the model, they make the code of an image a function of that image
alone, and so they are returned as well.

Eq. 4 requires clusters of equal share. With balance < 1 that becomes a penalty: lambda times the Kullback-Leibler divergence
of the shares from equal ones, where lambda = epsilon * balance / (1 - balance). This is unbalanced optimal transport: the
solution has the same form, and each iteration moves u by `balance` times the full step. At 0 the images are independent.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

log = logging.getLogger("concurl")

LogReduce = Callable[[Tensor], Tensor]
"""x -> log of the sum of exp(x) over all processes."""


@torch.no_grad()
def sinkhorn(
    scores: Tensor,  # (..., B, K): <z_i, c_k>; each leading index is a table of its own
    epsilon: float,
    iterations: int,
    *,
    balance: float = 1.0,  # 1: clusters of equal share, as in the paper; 0: no balancing
    log_reduce: LogReduce = lambda x: x,  # the default is for a single process
) -> tuple[Tensor, Tensor]:
    """Codes q (..., B, K), whose rows sum to 1, and the log-scalings u (..., K).

    Each iteration scales the clusters to a share of 1 / K and then every row to a sum of 1, as SwAV does. SwAV's
    exp(s / epsilon) overflows, in float16 at epsilon = 0.05 and in float32 at 0.01; its logarithm does not.
    """
    s = scaled(scores, epsilon)
    u = s.new_zeros(*s.shape[:-2], 1, s.shape[-1])
    v = s.new_zeros(*s.shape[:-1], 1)
    for _ in range(iterations):
        shares = log_reduce(torch.logsumexp(s + v, dim=-2, keepdim=True))
        u = balance * (-math.log(s.shape[-1]) - shares)
        v = -torch.logsumexp(s + u, dim=-1, keepdim=True)
    q, u = torch.softmax(s + u, dim=-1), u.squeeze(-2)
    return q, u - u.mean(-1, keepdim=True)  # a shift common to all clusters leaves q as it is


@torch.no_grad()
def streaming_scalings(
    chunks: Callable[[], Iterable[Tensor]],  # each call goes once through all scores, in parts of (n, K)
    epsilon: float,
    *,
    iterations: int = 1000,
    tolerance: float = 1e-6,
    balance: float = 1.0,
) -> Tensor:
    """The log-scalings u (K,) of a whole set, which need not fit in memory: only K numbers are kept.

    Stops when no scaling moves by more than `tolerance`. In full balance every cluster's share is then correct to that
    relative error.
    """
    u = torch.zeros(())
    for _ in range(iterations):
        shares = torch.tensor(-torch.inf)
        for part in chunks():
            log_q = torch.log_softmax(scaled(part, epsilon) + u, dim=1)
            shares = torch.logaddexp(shares, torch.logsumexp(log_q, dim=0))
        if not shares.dim():
            raise ValueError("no scores were given")
        before, u = u, balance * (u - shares)
        u = u - u.mean()
        moved = float((u - before).abs().max())
        if moved < tolerance:
            return u
    told = "after %d passes over the images the clusters' shares still move, by up to %.2g%%; a larger --epsilon settles sooner"
    log.warning(told, iterations, 100 * moved)
    return u


def scaled(scores: Tensor, epsilon: float) -> Tensor:
    """s / epsilon in float32 or better: half precision cannot hold it."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32)) / epsilon
