"""How fast is a training step, and where is its limit? One command, one table, one csv.

    python benchmarks/throughput.py --output results/throughput.csv            (on a GPU: about six minutes)
    python benchmarks/throughput.py --rows step                                (one group of rows)

Every row is measured in this process on synthetic images: warm-up, then WINDOWS timed windows, mean and deviation.
`ceiling` is the step with nothing but the networks: both branches, all heads, backward, optimiser, target update, in
the same compiled and captured form. `peer` is how such code is commonly written: float32, no compilation, a Python
loop over the M transformations.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from concurl.config import Config
from concurl.objective.ensemble import log_assignments
from concurl.objective.losses import byol_loss, swapped_loss
from concurl.training.graph import CapturedStep, CompiledStep
from concurl.training.step import Step
from concurl.training.trainer import Trainer
from concurl.views.views import Views

WINDOWS = 5
GPU = torch.cuda.is_available()

BASE = Config(
    encoder="resnet18", stem="small", image_size=32, preset="natural", batch_size=512, epochs=1000, optimizer="adamw",
    compile="on", n_transforms=100, projection_dim=64,
)  # fmt: skip
STL = BASE.replace(encoder="resnet34", stem="large", image_size=96, batch_size=128)


class Ceiling(Step):
    """The networks alone: the limit that views, codes and cluster losses are measured against."""

    def losses(self, x1: Tensor, x2: Tensor, now: Any, clustering: bool) -> Tensor:
        x = torch.cat([x1, x2]).contiguous(memory_format=torch.channels_last)
        with torch.autocast(x.device.type, self.autocast or torch.bfloat16, enabled=self.autocast is not None):
            _, _, z, w = self.model(x)
            with torch.no_grad():
                target = self.model.target(x)
        loss = byol_loss(*w.chunk(2), *target.v.chunk(2)) + z.float().square().mean()
        return torch.stack([loss, loss, loss, loss])


class Peer(Step):
    """The same step with a Python loop over the transformations."""

    def losses(self, x1: Tensor, x2: Tensor, now: Any, clustering: bool) -> Tensor:
        c = self.config
        (_, _, z1, w1), (_, _, z2, w2) = self.model(x1), self.model(x2)
        with torch.no_grad():
            v1, v2 = self.model.target(x1).v, self.model.target(x2).v
        C = self.model.prototypes
        q1, q2 = self.codes(z1, z2)
        l1 = byol_loss(w1, w2, v1, v2)
        l2 = swapped_loss(log_assignments(z1, C, c.tau), log_assignments(z2, C, c.tau), q1, q2)
        l3 = torch.zeros((), device=z1.device)
        for A in self.A:
            l3 = l3 + swapped_loss(
                log_assignments(z1 @ A.t(), C @ A.t(), c.tau), log_assignments(z2 @ A.t(), C @ A.t(), c.tau), q1, q2
            )
        l3 = l3 / len(self.A)
        return torch.stack([l1 + l2 + l3, l1, l2, l3])


def synthetic(config: Config, n: int = 8192) -> np.ndarray:
    assert config.image_size is not None
    size = config.image_size
    n = max(2 * (config.batch_size or 0), n * 32 * 32 // (size * size))
    return np.random.default_rng(0).integers(0, 256, (n, 3, size, size), dtype=np.uint8)


def build(config: Config, form: str) -> Callable[[], Tensor]:
    """A function that takes one step of the whole method ("step"), or of one of the two comparisons."""
    images = synthetic(config)
    trainer = Trainer(config.replace(monitor_images=2), images)
    device, B = trainer.arithmetic.device, config.batch_size
    assert B is not None
    trainer.model.train()
    step: Any = trainer.take_step
    if form in ("ceiling", "peer"):
        plain = step
        while isinstance(plain, CapturedStep | CompiledStep):
            plain = plain.step
        kind = Ceiling if form == "ceiling" else Peer
        views: Any = Views(config)
        if form == "ceiling":
            still = torch.randn(2, B, 3, config.image_size, config.image_size, device=device)
            views = lambda images, ids, number: (still[0], still[1])  # noqa: E731
        step = kind(config, plain.model, plain.optimizer, plain.A, plain.queue, views, plain.autocast)
        if form == "ceiling" and GPU and config.compile == "on":
            step = CapturedStep(CompiledStep(step))
    resident = torch.from_numpy(images).to(device)
    order = torch.randperm(len(images), device=device)
    settings = trainer.schedule.table(0, 1).to(device)[0]
    number = torch.zeros((), dtype=torch.int64, device=device)
    state = {"i": 0}

    def take() -> Tensor:
        i = state["i"] = (state["i"] + 1) % (len(images) // B)
        ids = order[i * B : (i + 1) * B]
        result: Tensor = step(resident[ids], ids, number, settings, True)
        return result

    return take


def timed(take: Callable[[], Any], seconds: float = 0.8) -> tuple[float, float]:
    """Mean and deviation over WINDOWS windows of the seconds one call takes."""
    for _ in range(6):
        take()
    _wait()
    started = time.perf_counter()
    take()
    _wait()
    calls = max(3, int(seconds / max(1e-5, time.perf_counter() - started)))
    windows = []
    for _ in range(WINDOWS):
        started = time.perf_counter()
        for _ in range(calls):
            take()
        _wait()
        windows.append((time.perf_counter() - started) / calls)
    return float(np.mean(windows)), float(np.std(windows))


def _wait() -> None:
    if GPU:
        torch.cuda.synchronize()


def matrix_rate() -> float:
    """TFLOP/s of a large bf16 matrix product: the card's measured limit."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    seconds, _ = timed(lambda: a @ a)
    return 2 * 8192**3 / seconds / 1e12


def flops(config: Config) -> float:
    """Floating-point operations of one step's networks, counted by torch."""
    from torch.utils.flop_counter import FlopCounterMode

    step = build(config.replace(compile="off", batch_size=2, device="cpu"), "ceiling")
    with FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops() / 2 * (config.batch_size or 0)


def measure(name: str, config: Config, form: str) -> dict[str, Any]:
    started = time.perf_counter()
    if GPU:
        torch.cuda.reset_peak_memory_stats()
    take = build(config, form)
    take()
    _wait()
    first = time.perf_counter() - started
    mean, deviation = timed(take)
    row = {
        "group": name, "form": form, "encoder": config.encoder, "stem": config.stem, "px": config.image_size,
        "batch": config.batch_size, "M": config.n_transforms, "K": config.n_clusters, "ms": 1e3 * mean,
        "ms_std": 1e3 * deviation, "images_per_s": (config.batch_size or 0) / mean, "first_step_s": first,
        "peak_GiB": torch.cuda.max_memory_allocated() / 2**30 if GPU else float("nan"),
    }  # fmt: skip
    if form == "ceiling" or form == "step":
        row["tflops"] = flops(config) / mean / 1e12
    torch._dynamo.reset()
    return row


def view_rows() -> list[dict[str, Any]]:
    """Both views of a batch, ours compiled and plain, kornia's and torchvision's where installed."""
    return [row for config in (BASE, STL.replace(batch_size=512)) for row in _view_rows(config)]


def _view_rows(config: Config) -> list[dict[str, Any]]:
    device = torch.device("cuda" if GPU else "cpu")
    B, S = config.batch_size, config.image_size
    assert B is not None
    assert S is not None
    images = torch.randint(0, 256, (B, 3, S, S), dtype=torch.uint8, device=device)
    ids, number = torch.arange(B, device=device), torch.zeros((), dtype=torch.int64, device=device)
    plain = Views(config)
    forms: dict[str, Callable[[], Any]] = {"ours, plain": lambda: plain(images, ids, number)}
    if GPU:
        compiled = torch.compile(plain, dynamic=False)
        forms["ours, compiled"] = lambda: compiled(images, ids, number)
    forms |= {name: f for name, make in (("kornia", _kornia), ("torchvision", _torchvision)) if (f := make(S, images))}
    rows = []
    for name, call in forms.items():
        mean, deviation = timed(call, 0.4)
        times = {"ms": 1e3 * mean, "ms_std": 1e3 * deviation, "images_per_s": B / mean}
        rows.append({"group": "views", "form": name, "px": S, "batch": B} | times)
    return rows


def _kornia(size: int, images: Tensor) -> Callable[[], Any] | None:
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
    return lambda: (one(images.float() / 255), two(images.float() / 255))


def _torchvision(size: int, images: Tensor) -> Callable[[], Any] | None:
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
        return v2.Compose(steps)

    one, two = pipeline(1.0), pipeline(0.5)
    few = images[:64]  # timed on 64 images and scaled: a whole batch takes seconds

    def both() -> None:
        for image in few:
            one(image), two(image)

    return _scaled(both, len(images) / len(few))


def _scaled(call: Callable[[], None], factor: float) -> Callable[[], None]:
    def repeated() -> None:
        for _ in range(round(factor)):
            call()

    return repeated


def plan() -> dict[str, list[tuple[Config, str]]]:
    wide = BASE.replace(encoder="resnet34")
    return {
        "step": [(c, form) for c in (BASE, wide, STL) for form in ("ceiling", "step")],
        "M": [(BASE.replace(n_transforms=m), "step") for m in (1, 10, 100, 1000)],
        "K": [(BASE.replace(n_clusters=k), "step") for k in (10, 100, 1000)],
        "batch": [(BASE.replace(batch_size=b), "step") for b in (128, 256, 512, 1024)],
        "px": [(BASE.replace(image_size=s, stem=stem, batch_size=b), "step")
               for s, stem, b in ((32, "small", 512), (96, "large", 256), (224, "large", 256))],
        "peer": [(BASE.replace(compile="off", precision="float32"), "peer")],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rows", nargs="*", default=[*plan(), "views"], help="groups of rows: " + ", ".join([*plan(), "views"])
    )
    parser.add_argument("--output", type=Path, help="csv to write")
    parser.add_argument("--batch", type=int, help="override every batch size (to try the script on a CPU)")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    rate = matrix_rate() if GPU else float("nan")
    print(
        f"torch {torch.__version__}, {torch.cuda.get_device_name() if GPU else 'CPU'}, matrix rate {rate:.0f} TFLOP/s"
    )
    for group in given.rows:
        jobs = plan().get(group, [])
        for config, form in jobs:
            config = config.replace(batch_size=given.batch) if given.batch else config
            rows.append(measure(group, config, form))
            _print(rows[-1], rate)
        if group == "views":
            for row in view_rows():
                rows.append(row)
                _print(row, rate)
    if given.output:
        columns = list(dict.fromkeys(key for row in rows for key in row))
        with open(given.output, "w", newline="") as file:
            writer = csv.DictWriter(file, [*columns, "device", "torch", "matrix_tflops"], lineterminator="\n")
            writer.writeheader()
            for row in rows:
                facts = {"device": torch.cuda.get_device_name() if GPU else "CPU", "torch": torch.__version__}
                writer.writerow(
                    {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in (row | facts).items()}
                    | {"matrix_tflops": f"{rate:.0f}"}
                )


def _print(row: dict[str, Any], rate: float) -> None:
    about = " ".join(f"{k}={row[k]}" for k in ("encoder", "px", "batch", "M", "K") if k in row)
    share = f"  {row['tflops']:.0f} TFLOP/s ({row['tflops'] / rate:.0%})" if "tflops" in row else ""
    start = f"  first step {row['first_step_s']:.1f} s, {row['peak_GiB']:.1f} GiB" if "first_step_s" in row else ""
    speed = f"{row['ms']:8.2f} ms +-{row['ms_std']:.2f}  {row['images_per_s']:9,.0f} images/s"
    print(f"{row['group']:6} {row['form']:15} {about:45} {speed}{share}{start}", flush=True)


if __name__ == "__main__":
    main()
