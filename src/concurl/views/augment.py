"""The batched operations: every image has its own parameters, without a loop over images.

Images are float32 in [0, 1] of shape (B, H, 3, W), rows before channels: so the columns are resampled by one batched product
and the rows by another, with no copy between them, and `normalise` returns to (B, 3, H, W) in a pass that it makes anyway.
Parameters are (B,) tensors. All is arithmetic on fixed shapes, without indexing by data and without waiting for the device:
it compiles into few kernels, and a CUDA graph can capture it. On a CPU without compilation, new memory costs more than
arithmetic; hence the operations in place on temporaries.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

MEAN = (0.485, 0.456, 0.406)  # ImageNet's, as in the paper
STD = (0.229, 0.224, 0.225)


def from_uint8(images: Tensor) -> Tensor:
    """uint8 (B, 3, H, W) -> float32 (B, H, 3, W) in [0, 1]."""
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
        raise ValueError(f"images: uint8 (B, 3, H, W) is needed, not {images.dtype} {tuple(images.shape)}")
    return images.transpose(1, 2).contiguous().to(torch.float32) / 255


# ---- geometry ----------------------------------------------------------------------------------------------


def resampling_matrix(start: Tensor, length: Tensor, n_in: int, n_out: int, flip: Tensor | None = None) -> Tensor:
    """The matrix (B, n_out, n_in) that crops a line to `length` pixels from `start` on and resizes them to n_out.

    The same as F.interpolate(crop, n_out, mode="bilinear", antialias=True): the weights of an output pixel are a triangle
    around its place, as wide as an output pixel but never narrower than an input pixel.
    """
    i = torch.arange(n_out, device=start.device, dtype=start.dtype)[:, None] + 0.5
    j = torch.arange(n_in, device=start.device, dtype=start.dtype)
    start, length = start[:, None, None], length[:, None, None]
    if flip is not None:
        i = torch.where(flip[:, None, None], n_out - i, i)  # (B, n_out, 1)
    step = length / n_out
    place = start + i * step - 0.5  # (B, n_out, 1), in pixels of the input
    hat = (1 - (j - place).abs_() / step.clamp(min=1)).clamp_(min=0)
    hat = hat * ((j >= start) & (j < start + length))
    return hat / hat.sum(-1, keepdim=True)


def resample(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """In both directions: (B, H, 3, W) by the matrices (B, S, H) and (B, S, W) -> (B, S, 3, S)."""
    batch, height = x.shape[:2]
    x = x.flatten(1, 2) @ columns.mT  # (B, 3H, W) @ (B, W, S)
    x = rows @ x.view(batch, height, -1)  # (B, S, H) @ (B, H, 3S)
    return x.view(batch, rows.shape[1], 3, -1)


def warp(x: Tensor, theta: Tensor, size: int, padding: str) -> Tensor:
    """Views (B, S, 3, S) by affine maps theta (B, 2, 3) from a view's coordinates to the image's, both from -1 to 1."""
    grid = F.affine_grid(theta, [len(x), 3, size, size], align_corners=False)
    x = F.grid_sample(x.transpose(1, 2), grid, mode="bilinear", padding_mode=padding, align_corners=False)
    return x.transpose(1, 2)


# ---- colour: as torchvision's ColorJitter changes it -------------------------------------------------------


def luma(x: Tensor) -> Tensor:
    """(B, H, 3, W) -> (B, H, 1, W), by the usual weights of ITU-R 601."""
    r, g, b = x.unbind(2)
    return (0.299 * r + 0.587 * g + 0.114 * b).unsqueeze(2)


def brightness(x: Tensor, factor: Tensor) -> Tensor:
    return (x * _per_image(factor)).clamp_(0, 1)


def contrast(x: Tensor, factor: Tensor) -> Tensor:
    mean = luma(x.mean((1, 3), keepdim=True))  # (B, 1, 1, 1): the mean's luma is the luma's mean
    return (x * _per_image(factor)).add_(mean * (1 - _per_image(factor))).clamp_(0, 1)


def saturation(x: Tensor, factor: Tensor) -> Tensor:
    return torch.lerp(luma(x), x, _per_image(factor)).clamp_(0, 1)


# ---- colour: as Kornia's ColorJitter changed it in 2021, which the paper used; now its ColorJiggle -----------


def added_brightness(x: Tensor, factor: Tensor) -> Tensor:
    return (x + (_per_image(factor) - 1)).clamp_(0, 1)


def contrast_from_black(x: Tensor, factor: Tensor) -> Tensor:
    return (x * _per_image(factor)).clamp_(0, 1)


def hsv_saturation(x: Tensor, factor: Tensor) -> Tensor:
    """Scale HSV's saturation, up to 1, and keep hue and value: each channel moves away from the largest, or towards it."""
    top, bottom = x.amax(2, keepdim=True), x.amin(2, keepdim=True)
    most = top / (top - bottom).clamp(min=1e-12)  # there the smallest channel is 0 and the saturation 1
    return torch.lerp(top, x, torch.minimum(_per_image(factor), most))


# ---- colour: the same in both --------------------------------------------------------------------------------


def hue(x: Tensor, turns: Tensor) -> Tensor:
    """Turn the hue, and keep HSV's value and saturation.

    As a function of the hue, a channel has a plateau at the largest of r, g, b, a third of a turn wide, then a ramp down over
    a sixth, a floor at the smallest and a ramp up. Red's plateau is centred at 0, green's at 1/3, blue's at 2/3. So there is
    no need for HSV and its six cases: each channel is read off that curve at the turned hue.
    """
    r, g, b = x.unbind(2)
    more, less = torch.maximum(g, b), torch.minimum(g, b)
    top, bottom = torch.maximum(r, more), torch.minimum(r, less)
    height = top - bottom
    # 1/3 + (g + b - r - top) / 6 height is the hue's distance from red, in all six cases; green's side counts as positive
    seen = (g - r).add_(b).sub_(top)
    seen.div_(height.clamp(min=1e-12).mul_(6))  # a gray pixel's curve is flat: there any hue will do
    seen.add_(1 / 3).copysign_(g - b).add_(turns[:, None, None])
    centre = torch.arange(3, device=x.device)[:, None] / 3
    away = seen.unsqueeze(2) - centre  # (B, H, 3, W)
    away.sub_(away.round()).abs_()  # the short way round, at most half a turn
    return away.mul_(-6).add_(1).clamp_(-1, 0).mul_(height.unsqueeze(2)).add_(top.unsqueeze(2))


def drop_colour(x: Tensor, chosen: Tensor) -> Tensor:
    return torch.lerp(x, luma(x), _per_image(chosen).to(x.dtype))  # a weight of 0 or 1 is exact


def solarise(x: Tensor, chosen: Tensor) -> Tensor:
    return torch.where(_per_image(chosen) & (x >= 0.5), 1 - x, x)


def _per_image(values: Tensor) -> Tensor:
    return values[:, None, None, None]


# ---- filters -----------------------------------------------------------------------------------------------


def blur_matrix(sigma: Tensor, kernel: int, size: int) -> Tensor:
    """The matrix (B, S, S) that blurs a line of S pixels, reflected at its ends; with a sigma near 0, the identity.

    The kernel meets pixel j at its own place and at its two mirror images, so each row adds up the whole kernel.
    NOTE: the line is reflected only once at each end, so a kernel of more than 2S - 1 pixels is cut to that.
    """
    radius = min(kernel // 2, size - 1)
    j = torch.arange(size, device=sigma.device)
    i = j[:, None]

    def tap(distance: Tensor) -> Tensor:  # (S, S) -> (B, S, S)
        exponent = -distance.square() / (2 * sigma.square()[:, None, None])
        # e^-50 adds nothing to a float32, and smaller values become denormals, which are slow on a CPU
        return exponent.clamp_(min=-50).exp_() * (distance.abs() <= radius)

    # the end pixels are their own mirror images and must not count twice
    weight = tap(i - j) + tap(i + j) * (j > 0) + tap(2 * (size - 1) - i - j) * (j < size - 1)
    return weight / weight.sum(-1, keepdim=True)


def normalise(x: Tensor) -> Tensor:
    """(B, H, 3, W) in [0, 1] -> (B, 3, H, W) in ImageNet's standard units."""
    planes = zip(x.unbind(2), MEAN, STD, strict=True)
    return torch.stack([(plane - mean) / std for plane, mean, std in planes], dim=1)


def sobel(x: Tensor) -> Tensor:
    """(B, 3, H, W) -> (B, 2, H, W): the luma's slopes along columns and rows, per pixel; borders repeated."""
    gray = F.pad(luma(x.transpose(1, 2)).transpose(1, 2), (1, 1, 1, 1), mode="replicate")
    down = (gray[..., :-2, :] + 2 * gray[..., 1:-1, :] + gray[..., 2:, :]) / 8  # (B, 1, H, W + 2)
    along = (gray[..., :-2] + 2 * gray[..., 1:-1] + gray[..., 2:]) / 8  # (B, 1, H + 2, W)
    return torch.cat([down[..., 2:] - down[..., :-2], along[..., 2:, :] - along[..., :-2, :]], dim=1)
