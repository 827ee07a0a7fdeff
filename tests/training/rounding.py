"""What makes much of a rounding in training, a training without it, and a training with a rounding too many."""

from __future__ import annotations

import torch

from concurl.training.trainer import Trainer


class Smooth(torch.nn.Module):
    """An encoder without kinks. A ReLU whose input rounds to the other side of 0 changes a gradient at once."""

    num_features = 16

    def __init__(self) -> None:
        super().__init__()
        layers: list[torch.nn.Module] = []
        for channels in (3, 16):
            conv = torch.nn.Conv2d(channels, 16, 3, stride=2, padding=1, bias=False)
            layers += [conv, torch.nn.BatchNorm2d(16), torch.nn.Tanh()]
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x).mean(dim=(2, 3))


def bias_without_gradient(trainer: Trainer) -> torch.nn.Parameter:
    """The projector's last bias: the predictor's batch norm takes it away again, so its gradient is 0 but for rounding."""
    return trainer.model.online.projector[-1].bias


def hold_bias(trainer: Trainer) -> None:
    """Adam divides a gradient by its size: out of a rounding of 0 it makes a step as long as any other."""
    bias_without_gradient(trainer).register_hook(torch.zeros_like)


def disturb(trainer: Trainer) -> None:
    with torch.no_grad():
        next(trainer.model.online.encoder.parameters())[0, 0, 0, 0] += 1e-7
