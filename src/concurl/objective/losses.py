"""The three losses of the paper. L_total = alpha * L1 + beta * L2 + gamma * L3 (eq. 7)."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import cosine_similarity


def byol_loss(w1: Tensor, w2: Tensor, v1: Tensor, v2: Tensor) -> Tensor:
    """L1 (eqs. 1 and 2): each view's online prediction w against the other view's target projection v.

    ||w/|w| - v/|v|||^2 = 2 - 2 cos(w, v), summed over the two directions, mean over the batch: 0 to 8.
    All are (B, dim). No gradient goes into the target.
    """
    v1, v2 = v1.detach().float(), v2.detach().float()
    cos = cosine_similarity(w1.float(), v2, dim=1) + cosine_similarity(w2.float(), v1, dim=1)
    return (4 - 2 * cos).mean()


def swapped_loss(log_p1: Tensor, log_p2: Tensor, q1: Tensor, q2: Tensor) -> Tensor:
    """L2 (eq. 5) for assignments (B, K), L3 (eq. 6) for those of the whole ensemble (M, B, K).

    Each view's assignments are asked to predict the other view's codes q (B, K), which are constants; the mean
    runs over the batch and, for L3, over the M members. ln K is the value of knowing nothing.
    """
    q1, q2 = q1.detach(), q2.detach()
    return -(q2 * log_p1 + q1 * log_p2).sum(-1).mean() / 2
