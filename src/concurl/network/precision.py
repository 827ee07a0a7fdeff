"""The precision that the networks compute in."""

from __future__ import annotations

import torch


def precision(dtype: torch.dtype | None, device: torch.device) -> torch.autocast:
    """Within this context networks compute in `dtype`, by autocast, or in float32 if it is None.

    Autocast caches the weights it has cast until the outermost autocast ends, and there may be one around the whole training
    (the caller's, or the estimator's). A step would then not see what the last one has learned: hence no cache.
    """
    return torch.autocast(device.type, dtype or torch.bfloat16, enabled=dtype is not None, cache_enabled=False)
