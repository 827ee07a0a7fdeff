"""Random numbers that are a pure function of (seed, step, image, view, column).

There is no generator, and so no state: a view of an image does not depend on its place in the batch, on the rank or worker
that makes it, on the device, or on what was drawn before. A resumed run draws the same numbers as one without interruption,
and `step` may be a tensor on the device, so that each replay of a CUDA graph draws new ones.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

Word = TypeVar("Word", int, Tensor, int | Tensor)

# Wellons' hash lowbias32. torch's unsigned integers lack operations, so the 32 bits are kept in an int64. Both factors are
# below 2**31 in size (the second is taken modulo 2**32), so that no product overflows: in the C++ that inductor writes
# overflow is undefined, and from a 64-bit hash g++ 12 did make wrong code.
MASK = 2**32 - 1
MIX_1 = 0x7FEB352D
MIX_2 = 0x846CA68B - 2**32


def dice(seed: int, step: Tensor | int, ids: Tensor, view: Tensor | int, n: int) -> Tensor:
    """Uniform numbers in [0, 1), float32 (B, n): row b depends on image ids[b] and on no other row.

    Only the lowest 32 bits of each argument count. Under torch.compile, pass `step` as a 0-dim int64 tensor.

    >>> dice(seed=0, step=7, ids=torch.tensor([3, 5]), view=0, n=2).shape
    torch.Size([2, 2])
    """
    state = _mix(ids)
    for word in (_mix(seed), _mix(step), _mix(view)):
        # Words are mixed before they are joined: otherwise an image might always draw what another drew some steps
        # before. The factor keeps image and seed from being interchangeable.
        state = _mix(3 * state + word)
    column = torch.arange(1, n + 1, device=ids.device)
    bits = _mix(state[:, None] + _mix(column))  # (B, n)
    return (bits >> 8).to(torch.float32) * 2.0**-24  # 24 bits: evenly spaced in float32


def _mix(x: Word) -> Word:
    x = x & MASK
    x = ((x ^ (x >> 16)) * MIX_1) & MASK
    x = ((x ^ (x >> 15)) * MIX_2) & MASK
    return x ^ (x >> 16)
