"""Random numbers that are a pure function of (seed, step, image, view, column).

There is no generator and so no state: a view of an image does not depend on its place in the batch, on the
rank or worker that makes it, on the device, or on what was drawn before. A resumed run draws what the first
one drew, and `step` may be a tensor on the device, so that a replayed CUDA graph draws anew.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

Word = TypeVar("Word", int, Tensor, int | Tensor)

# Wellons' lowbias32. torch's unsigned integers lack operations, so the 32 bits live in an int64. The factors
# are below 2**31 (the second one modulo 2**32), so that no product leaves the int64: overflow is undefined in
# the C++ that inductor writes, and g++ 12 did make wrong code of a 64-bit hash.
MASK = 2**32 - 1
MIX_1 = 0x7FEB352D
MIX_2 = 0x846CA68B - 2**32


def dice(seed: int, step: Tensor | int, ids: Tensor, view: Tensor | int, n: int) -> Tensor:
    """Uniform numbers in [0, 1), float32 (B, n): row b belongs to image ids[b], whatever the other rows are.

    Only the lowest 32 bits of each word count. Under torch.compile pass `step` as a 0-dim int64 tensor.

    >>> dice(seed=0, step=7, ids=torch.tensor([3, 5]), view=0, n=2).shape
    torch.Size([2, 2])
    """
    state = _mix(ids)
    for word in (_mix(seed), _mix(step), _mix(view)):
        # Each word is mixed before it is joined, or an image might draw what another drew some steps before,
        # at every step; and the factor keeps image and seed from changing places.
        state = _mix(3 * state + word)
    column = torch.arange(1, n + 1, device=ids.device)
    bits = _mix(state[:, None] + _mix(column))  # (B, n)
    return (bits >> 8).to(torch.float32) * 2.0**-24  # 24 bits: all that a float32 below 1 holds evenly


def _mix(x: Word) -> Word:
    x = x & MASK
    x = ((x ^ (x >> 16)) * MIX_1) & MASK
    x = ((x ^ (x >> 15)) * MIX_2) & MASK
    return x ^ (x >> 16)
