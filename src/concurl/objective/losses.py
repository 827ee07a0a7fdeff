"""The three losses of the paper, which add up to L_total = alpha * L1 + beta * L2 + gamma * L3 (eq. 7)."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import cosine_similarity


def byol_loss(w1: Tensor, w2: Tensor, v1: Tensor, v2: Tensor) -> Tensor:
    """L1 (eqs. 1 and 2): each view's online prediction w should match the other view's target projection v.

    All four are (B, dim). The squared distance of two unit vectors is 2 - 2 cos(w, v). It is summed over both directions
    and averaged over the batch, so the loss lies between 0 and 8. No gradient reaches the target.
    """
    v1, v2 = v1.detach().float(), v2.detach().float()
    cos = cosine_similarity(w1.float(), v2, dim=1) + cosine_similarity(w2.float(), v1, dim=1)
    return (4 - 2 * cos).mean()


def swapped_loss(log_p1: Tensor, log_p2: Tensor, q1: Tensor, q2: Tensor) -> Tensor:
    """L2 (eq. 5) from the assignments log p (B, K), or L3 (eq. 6) from those of all M members, (M, B, K).

    Each view's assignments should predict the other view's codes q (B, K), which count as constants. The cross-entropy
    is averaged over both directions, the batch and, for L3, the members. Uniform assignments give ln K.
    """
    q1, q2 = q1.detach(), q2.detach()
    return -(q2 * log_p1 + q1 * log_p2).sum(-1).mean() / 2
