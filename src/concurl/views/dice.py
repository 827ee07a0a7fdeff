"""Random numbers that are a pure function of (seed, step, image, view, column).

There is no generator and so no state: a view of an image does not depend on its place in the batch, on the
rank or worker that makes it, on the device, or on what was drawn before. A resumed run draws what the first
one drew, and `step` may be a tensor on the device, so that a replayed CUDA graph draws anew.
"""

from __future__ import annotations

import torch
from torch import Tensor

# splitmix64 (Steele, Lea and Flood 2014); torch's 64-bit integers are signed, but their products wrap alike
GOLDEN = 0x9E3779B97F4A7C15 - 2**64
MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
MIX_2 = 0x94D049BB133111EB - 2**64


def dice(seed: int, step: Tensor | int, ids: Tensor, view: int, n: int) -> Tensor:
    """Uniform numbers in [0, 1), float32 (B, n): row b belongs to image ids[b], whatever the other rows are.

    Under torch.compile pass `step` as a 0-dim int64 tensor on the device of `ids`.

    >>> dice(seed=0, step=7, ids=torch.tensor([3, 5]), view=0, n=2).shape
    torch.Size([2, 2])
    """
    state = _mix(ids)
    for word in (seed, step, view):
        state = _mix(state + word)
    column = torch.arange(1, n + 1, device=ids.device)
    # the product comes last: given `column * GOLDEN` alone, inductor works out its bounds, beyond 64 bits, and stops
    bits = _mix((state[:, None] + column) * GOLDEN)  # (B, n)
    return _shift(bits, 40).to(torch.float32) * 2.0**-24  # 24 bits: all that a float32 below 1 holds evenly


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * MIX_1
    x = (x ^ _shift(x, 27)) * MIX_2
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    # torch's >> copies the sign bit down; the mask makes it the logical shift that the hash needs
    return (x >> bits) & ((1 << (64 - bits)) - 1)
