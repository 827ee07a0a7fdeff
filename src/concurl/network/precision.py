"""The precision that the networks compute in."""

from __future__ import annotations

import torch


def precision(dtype: torch.dtype | None, device: torch.device) -> torch.autocast:
    """A pass within it computes in `dtype` by autocast; None: in float32.

    Autocast would keep the weights it has cast until the outermost autocast ends. Around a whole training there may be one (a
    caller's, or the estimator's own): no step would then see what the last one has learned. So each pass casts them anew.
    """
    return torch.autocast(device.type, dtype or torch.bfloat16, enabled=dtype is not None, cache_enabled=False)
