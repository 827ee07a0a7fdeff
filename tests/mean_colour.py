"""An encoder from outside, as small as can be."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class MeanColour(nn.Module):
    num_features = 12

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 12, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.conv(x)).mean((2, 3))
