"""Both views of a batch: ours, and the same pipeline in kornia and torchvision where they are installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from concurl.config import Config
from concurl.views.views import Views
from timing import GPU, speed, timed


def view_rows(config: Config) -> list[dict[str, Any]]:
    device = torch.device("cuda" if GPU else "cpu")
    B, S = config.batch_size, config.image_size
    assert B is not None
    assert S is not None
    images = torch.randint(0, 256, (B, 3, S, S), dtype=torch.uint8, device=device)
    ids, number = torch.arange(B, device=device), torch.zeros((), dtype=torch.int64, device=device)
    plain = Views(config)
    # name: (function, how many images it makes two views of)
    forms: dict[str, tuple[Callable[[], Any], int]] = {"ours, plain": (lambda: plain(images, ids, number), B)}
    if GPU:
        compiled = torch.compile(plain, dynamic=False)
        forms["ours, compiled"] = (lambda: compiled(images, ids, number), B)
    forms |= {name: f for name, make in (("kornia", _kornia), ("torchvision", _torchvision)) if (f := make(S, images))}
    rows = []
    for name, (call, n) in forms.items():
        rows.append({"group": "views", "form": name, "px": S, "batch": n} | speed(*timed(call, 0.4), n))
    return rows


def _kornia(size: int, images: Tensor) -> tuple[Callable[[], Any], int] | None:
    try:
        import kornia.augmentation as K
    except ImportError:
        return None

    def pipeline(p_blur: float) -> torch.nn.Module:
        return K.AugmentationSequential(
            K.RandomResizedCrop((size, size), scale=(0.08, 1.0), cropping_mode="resample"),
            K.RandomHorizontalFlip(), K.ColorJitter(0.4, 0.4, 0.2, 0.1, p=0.8), K.RandomGrayscale(p=0.2),
            K.RandomGaussianBlur((23, 23), (0.1, 2.0), p=p_blur),
            K.Normalize(torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])),
        ).to(images.device)  # fmt: skip

    one, two = pipeline(1.0), pipeline(0.5)
    return lambda: (one(images.float() / 255), two(images.float() / 255)), len(images)


def _torchvision(size: int, images: Tensor) -> tuple[Callable[[], Any], int] | None:
    """torchvision draws once per call, so a batch with each image its own dice is a loop over images."""
    try:
        from torchvision.transforms import v2
    except Exception:  # its published wheels do not load beside every torch
        return None

    def pipeline(p_blur: float) -> Callable[[Tensor], Tensor]:
        blur = v2.RandomApply([v2.GaussianBlur(min(23, 2 * (size // 2) - 1), (0.1, 2.0))], p=p_blur)
        steps = [v2.RandomResizedCrop(size, (0.08, 1.0), antialias=True), v2.RandomHorizontalFlip(),
                 v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8), v2.RandomGrayscale(0.2), blur,
                 v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]  # fmt: skip
        composed: Callable[[Tensor], Tensor] = v2.Compose(steps)
        return composed

    one, two = pipeline(1.0), pipeline(0.5)
    few = images[:64]  # a whole batch takes seconds

    def both() -> None:
        for image in few:
            one(image), two(image)

    return both, len(few)
