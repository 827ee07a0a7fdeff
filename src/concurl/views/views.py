"""The random views of a batch that are trained on, and the fixed view of an image that is labelled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from concurl.config import Config
from concurl.data.storage.sizes import stored_size
from concurl.errors import UserError
from concurl.views import augment
from concurl.views.dice import dice
from concurl.views.draw import COLUMNS, random_view
from concurl.views.presets import view_spec

MakeViews = Callable[[Tensor, Tensor, Tensor], Sequence[Tensor]]
"""(images uint8 (B, 3, H, W), ids (B,), step ()) -> n_views tensors x1, x2, ..., each float32 (B, channels, S, S)"""


class Views:
    """`views(images, ids, step)` makes n_views of a uint8 batch; each depends only on its image, its id, seed and step.

    Holds no tensors, never waits for the device, and can be compiled (fullgraph=True, dynamic=False).
    """

    def __init__(self, config: Config) -> None:
        self.seed, self.n_views, self.spec = config.seed, config.n_views, view_spec(config)

    def __call__(self, images: Tensor, ids: Tensor, step: Tensor | int) -> tuple[Tensor, ...]:
        """uint8 (B, 3, H, W), int64 (B,), int64 () -> n_views of float32 (B, channels, S, S)."""
        # an autocast around the training step would round pixels to bfloat16 in the matrix products
        with torch.no_grad(), torch.autocast(images.device.type, enabled=False):
            x, n = augment.from_uint8(images), self.n_views
            view = torch.arange(n, device=ids.device).repeat_interleave(len(ids))
            u = dice(self.seed, step, ids.repeat(n), view, COLUMNS)
            images_of_all = x.expand(n, *x.shape).flatten(0, 1)
            return random_view(images_of_all, self.spec, u, view % 2 == 1).chunk(n)


def check_views(views: object, n_views: int, n_images: int, channels: int) -> None:
    """Refuse what is not n_views float tensors of one shape: a user's own views() may return anything."""
    found = list(views) if isinstance(views, Sequence | Tensor) else [views]
    floats = (torch.float32, torch.get_default_dtype())  # the second differs only where everything is float64
    shapes = {tuple(x.shape) if isinstance(x, Tensor) and x.dtype in floats else () for x in found}
    shape = shapes.pop() if len(shapes) == 1 else ()
    if len(found) != n_views or len(shape) != 4 or shape[:2] != (n_images, channels):
        gave = (f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__ for x in found)
        raise UserError(
            f"views() must give {n_views} tensors of float32, all of one shape ({n_images}, {channels}, size, size); it gave "
            f"{', '.join(gave) or 'none'}"
        )


def evaluation_view(images: Tensor, image_size: int, sobel: bool = False) -> Tensor:
    """The central square of each image, for labelling: uint8 (B, 3, H, W) -> float32 (B, 3 or 2, S, S).

    The smaller edge is resized to the side that images are kept at: for 224 px that is 256, as in the paper.
    """
    edge = stored_size(image_size)
    height, width = images.shape[2:]
    with torch.no_grad(), torch.autocast(images.device.type, enabled=False):
        x = augment.from_uint8(images)
        if not height == width == edge == image_size:
            rows, columns = (
                _centre(n, n * edge // min(height, width), image_size, images.device) for n in (height, width)
            )
            if x.device.type == "cpu":  # float32 products depend on the place in the batch; labels must not
                x = augment.resample(x.double(), rows.double(), columns.double()).float()
            else:
                x = augment.resample(x, rows, columns)
        x = augment.normalise(x)
        return augment.sobel(x) if sobel else x


def _centre(n_in: int, n_resized: int, n_out: int, device: torch.device) -> Tensor:
    """The matrix (1, n_out, n_in) that resizes a line to n_resized pixels and keeps the middle n_out."""
    start, length = torch.zeros(1, device=device), torch.full((1,), float(n_in), device=device)
    first = round((n_resized - n_out) / 2)
    return augment.resampling_matrix(start, length, n_in, n_resized)[:, first : first + n_out]
