"""f: ResNet-18/34/50 (He et al. 2016), with a stem for large and one for small images.

Any module with `.num_features` that maps (B, channels, S, S) to (B, num_features) may take its place (timm's contract).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from concurl.errors import UserError, said_by


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(channels, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = _shortcut(channels, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = torch.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return torch.relu(out + self.shortcut(x))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions and a shortcut."""

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(channels, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _conv(width, 4 * width, 1)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.shortcut = _shortcut(channels, 4 * width, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = torch.relu(self.bn1(self.conv1(x)))
        out = torch.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return torch.relu(out + self.shortcut(x))


class ResNet(nn.Module):
    """Stages of residual blocks, all but the first of which halve the resolution, then the mean over pixels."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: tuple[int, ...],
        *,
        stem: Literal["large", "small"],
        in_channels: int = 3,
        width: int = 64,
    ) -> None:
        super().__init__()
        if stem == "large":
            self.stem = nn.Sequential(
                _conv(in_channels, width, 7, 2), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
            )
        else:
            self.stem = nn.Sequential(_conv(in_channels, width, 3), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
        stages: list[nn.Module] = []
        channels = width
        for index, depth in enumerate(depths):
            for first in [True] + [False] * (depth - 1):
                stages.append(block(channels, width << index, 2 if first and index > 0 else 1))
                channels = (width << index) * block.expansion
        self.stages = nn.Sequential(*stages)
        self.num_features = channels
        for module in self.modules():
            if isinstance(module, nn.Conv2d) and not module.weight.is_meta:  # see Model
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        return torch.mean(self.stages(self.stem(x)), dim=(2, 3))


def build_encoder(name: str, *, stem: Literal["large", "small"], in_channels: int = 3) -> ResNet:
    """The encoder called `name`; in_channels is 2 after a Sobel filter."""
    if name in ("tiny", "light"):  # not in the paper: small enough for a CPU
        depths = (1, 1) if name == "tiny" else (1, 1, 1, 1)
        return ResNet(BasicBlock, depths, stem=stem, in_channels=in_channels, width=32)
    block: type[BasicBlock] | type[Bottleneck] = Bottleneck if name == "resnet50" else BasicBlock
    return ResNet(block, (2, 2, 2, 2) if name == "resnet18" else (3, 4, 6, 3), stem=stem, in_channels=in_channels)


def check_encoder(encoder: nn.Module, size: int, channels: int, remedy: str = "") -> None:
    """Try a user's encoder on two images, so that an error in it comes up before training; `remedy` ends the message."""
    name, training = type(encoder).__name__, encoder.training
    like = next(encoder.parameters(), torch.empty(0))
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            y = encoder.eval()(torch.zeros(2, channels, size, size, device=like.device))
        except Exception as error:
            raise UserError(
                f"encoder={name}: it fails on images of shape (2, {channels}, {size}, {size}): {said_by(error)}{remedy}"
            ) from error
        finally:
            encoder.train(training)
    wanted = (2, encoder.num_features)
    if not isinstance(y, Tensor) or y.shape != wanted:
        given = f"a tensor of shape {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
        raise UserError(f"encoder={name}: for two images it gives {given}; by its num_features it should be {wanted}")


def _conv(channels: int, width: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels, width, kernel, stride, padding=kernel // 2, bias=False)


def _shortcut(channels: int, width: int, stride: int) -> nn.Module:
    if stride == 1 and channels == width:
        return nn.Identity()
    return nn.Sequential(_conv(channels, width, 1, stride), nn.BatchNorm2d(width))
