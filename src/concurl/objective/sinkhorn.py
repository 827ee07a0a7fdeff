"""Codes q: the balanced soft assignments of eq. 4, by Sinkhorn-Knopp in the log domain.

The solution of eq. 4 is q_i = softmax_k(s_ik / epsilon + u_k). What the code of an image takes from the other images of its
batch (or of the whole set) is in the K log-scalings u alone. They are returned as well: kept with the model, they make the
code of an image a function of that image.

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
MOST_FOR_NEWTON = 5_000  # clusters: its tables of K x K then take a gigabyte, and a pass ten times as long


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
    exp(s / epsilon) overflows, in float16 at epsilon = 0.05 and in float32 at 0.01; its logarithm does not. A table that has
    the images last in memory takes a CPU a third of the time.
    """
    s = scaled(scores, epsilon)
    u = s.new_zeros(*s.shape[:-2], 1, s.shape[-1])
    v = s.new_zeros(*s.shape[:-1], 1)
    for _ in range(iterations):
        shares = log_reduce(torch.logsumexp(s + v, dim=-2, keepdim=True))
        u = balance * (-math.log(s.shape[-1]) - shares)
        v = -torch.logsumexp(s + u, dim=-1, keepdim=True)
    q, u = torch.softmax((s + u).mT, dim=-2).mT, u.squeeze(-2)
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
    """The log-scalings u (K,) of a whole set, in float64. The set need not fit in memory: only K x K numbers are kept.

    Where codes are nearly hard, Sinkhorn's iteration needs thousands of passes over the set. So each pass here is a step of
    Newton's method, to where the iteration would come to rest if it were linear: ten to thirty passes. With more than
    MOST_FOR_NEWTON clusters it is Sinkhorn's own step.

    Stops when Sinkhorn's step would move no scaling by more than `tolerance`. In full balance every cluster's share is then
    correct to that relative error.
    """
    u = torch.zeros((), dtype=torch.float64)
    for _ in range(iterations):
        log_shares, overlap = _shares(chunks(), epsilon, u)
        move = _centred(balance * (u - log_shares)) - u
        moved = float(move.abs().max())
        if moved < tolerance:
            return u + move
        u = u + (move if overlap is None else _newton_step(move, overlap, balance))
    told = "after %d passes over the images the clusters' shares still move, by up to %.2g%%; a larger --epsilon settles sooner"
    log.warning(told, iterations, 100 * moved)
    return u


def _shares(chunks: Iterable[Tensor], epsilon: float, u: Tensor) -> tuple[Tensor, Tensor | None]:
    """In one pass: log of the sums of q_k over the images (K,), and the sums of q_k q_l (K, K), unless that is too much."""
    log_shares, overlap = torch.tensor(-torch.inf, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for part in chunks:
        log_q = torch.log_softmax(scaled(part.double(), epsilon) + u, dim=1)
        log_shares = torch.logaddexp(log_shares, torch.logsumexp(log_q, dim=0))
        if part.shape[1] <= MOST_FOR_NEWTON:
            q = log_q.exp_()
            overlap = overlap + q.t() @ q
    if not log_shares.dim():
        raise ValueError("no scores were given")
    return log_shares, overlap if overlap.dim() else None


def _newton_step(move: Tensor, overlap: Tensor, balance: float) -> Tensor:
    """From Sinkhorn's own move to one that ends, were the move linear in u, where there is nothing left to move.

    d(log share_k) / d(u_l) = 1[k = l] - overlap_kl / share_k. For hard codes this is the difference of nearly equal numbers,
    so share_k is computed as the sum of the overlaps: both then have the same rounding errors. A share too small for a float
    has a row of zero overlaps, and its cluster takes Sinkhorn's own move. A whole step overshoots. So one of width w is
    shortened to ln(1 + w), as for other sums of softmax functions (F. Bach, Self-concordant analysis for logistic regression,
    2010), unless Sinkhorn's own move, which is never too wide, goes further: far from balance it does.
    """
    one = torch.eye(len(move), dtype=move.dtype)
    shares = overlap.sum(1, keepdim=True).clamp_min(torch.finfo(move.dtype).tiny)
    follows = balance * _centred(overlap / shares)  # derivative of the next u by this one
    fixed = 1 / len(move) + 1e-15 * one  # keeps u centred, and the system solvable where u has no effect on hard codes
    step = _centred(torch.linalg.solve(one - follows + fixed, move))
    width = float(step.max() - step.min())
    shortened = math.log1p(width)
    return move if float(move.max() - move.min()) > shortened else step * (shortened / width)


def _centred(x: Tensor) -> Tensor:
    """A shift common to all clusters leaves the codes as they are."""
    return x - x.mean(0)


def scaled(scores: Tensor, epsilon: float) -> Tensor:
    """s / epsilon in float32 or better: half precision cannot hold it."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32)) / epsilon
