"""How fast is a training step, and where is its limit? One command, one table, one csv.

    python benchmarks/throughput.py --output results/throughput.csv            (on a GPU: about seven minutes)
    python benchmarks/throughput.py --rows step views                          (some groups of rows)

Every row is measured on synthetic images: warm-up, then WINDOWS timed windows, mean and deviation.
`ceiling` is the step with nothing but the networks: both branches, all heads, backward, optimiser, target update, in
the same compiled and captured form. `peer` is how such code is commonly written: float32, no compilation, a Python
loop over the M transformations.
"""

from __future__ import annotations

import argparse
import csv
import functools
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from concurl.config import Config
from concurl.recipes import CPU_SIZE, SetFacts, digits, modern, settle
from concurl.training.heap import freed_memory_kept
from forms import build
from kernels import profile_rows
from passes import memory_rows, predict_rows, stream_rows
from rival_views import view_rows
from startup import start_rows
from timing import GPU, about, speed, timed, wait

BASE = Config(
    encoder="resnet18", stem="small", image_size=32, preset="natural", batch_size=512, epochs=1000, optimizer="adamw",
    compile="on", n_transforms=100, projection_dim=64, monitor_images=2,
)  # fmt: skip
WIDE = BASE.replace(encoder="resnet34")
STL = BASE.replace(encoder="resnet34", stem="large", image_size=96, batch_size=128)
# On a CPU: what the demo trains, and what 500 and 9,469 photographs get by default.
CPU = [digits(), *(settle(modern(), SetFacts(n, CPU_SIZE, CPU_SIZE, False, False))[0] for n in (500, 9469))]

Row = dict[str, Any]


def plan(base: Config = BASE) -> dict[str, list[Callable[[], list[Row]]]]:
    """What each group measures; nothing is built before its turn."""

    def steps(group: str, *jobs: tuple[Config, str]) -> list[Callable[[], list[Row]]]:
        def job(config: Config, form: str) -> Callable[[], list[Row]]:
            return lambda: [measure(group, config, form)]

        return [job(*which) for which in jobs]

    return {
        "start": [lambda: start_rows(base), lambda: start_rows(WIDE)],
        "step": steps("step", *((c, form) for c in (base, WIDE, STL) for form in ("ceiling", "step"))),
        "race": [alone("race", c.replace(reproducible=False), f) for c in (base, STL) for f in ("ceiling", "step")],
        "M": steps("M", *((base.replace(n_transforms=m), "step") for m in (1, 10, 100, 1000))),
        "K": steps("K", *((base.replace(n_clusters=k), "step") for k in (10, 100, 1000))),
        "batch": steps("batch", *((base.replace(batch_size=b), "step") for b in (128, 256, 512, 1024))),
        "px": steps("px", *((base.replace(image_size=s, stem=stem, batch_size=b), "step")
                            for s, stem, b in ((96, "large", 512), (224, "large", 256)))),
        "peer": steps("peer", (base.replace(compile="off", precision="float32"), "peer")),
        "views": [lambda: view_rows(base), lambda: view_rows(STL.replace(batch_size=512))],
        "stream": [lambda: stream_rows(STL)],
        "memory": [lambda: memory_rows(base)],
        "predict": [lambda: predict_rows(base), lambda: predict_rows(STL)],
        "profile": [lambda: profile_rows(base)] if GPU else [],
        "cpu": steps("cpu", *((c.replace(device="cpu"), form) for c in CPU
                              for form in ("ceiling", "before clustering", "step"))),
    }  # fmt: skip


def measure(name: str, config: Config, form: str) -> Row:
    if GPU:
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    with freed_memory_kept():  # as in training
        take = build(config, form)
        take()
        wait()
        first = time.perf_counter() - started
        mean, deviation = timed(take)
    assert config.batch_size is not None
    row = {
        "group": name, "form": form, "encoder": config.encoder, "stem": config.stem, **about(config),
        "M": config.n_transforms, "K": config.n_clusters,
        **speed(mean, deviation, config.batch_size), "first_step_s": first,
        "peak_GiB": torch.cuda.max_memory_allocated() / 2**30 if GPU else float("nan"),
    }  # fmt: skip
    if form != "peer":
        row["tflops"] = config.batch_size * flops(config.encoder, config.stem, config.image_size) / mean / 1e12
    return row


def alone(name: str, config: Config, form: str) -> Callable[[], list[Row]]:
    """In a process of its own: cuDNN keeps a kernel that it has chosen, raced for or not, as long as the process lives."""

    def job() -> list[Row]:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            return [process.submit(measure, name, config, form).result()]

    return job


def matrix_rate() -> float:
    """TFLOP/s of a large bf16 matrix product: the card's measured limit."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    return 2 * 8192**3 / timed(lambda: a @ a)[0] / 1e12


@functools.cache
def flops(encoder: Any, stem: Any, px: int) -> float:
    """Floating-point operations that one image costs the networks in a step, counted by torch."""
    small = BASE.replace(encoder=encoder, stem=stem, image_size=px, compile="off", batch_size=2, device="cpu")
    step = build(small, "ceiling")
    with FlopCounterMode(display=False) as counter:
        step()
    return float(counter.get_total_flops()) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    groups = plan()
    parser.add_argument(
        "--rows",
        nargs="*",
        choices=groups,
        default=[*groups],
        metavar="ROWS",
        help="groups of rows: " + ", ".join(groups),
    )
    parser.add_argument("--output", type=Path, help="csv to write, after every row")
    given = parser.parse_args()
    rate = matrix_rate() if GPU else float("nan")
    device = torch.cuda.get_device_name() if GPU else "CPU"
    print(f"torch {torch.__version__}, {device}, matrix rate {rate:.0f} TFLOP/s")
    facts = {"device": device, "torch": torch.__version__, "matrix_tflops": rate}
    rows: list[Row] = []
    for job in (job for group in given.rows for job in groups[group]):
        for row in job():
            rows.append(row | facts)
            print(line(row, rate), flush=True)
            if given.output:
                write(given.output, rows)


def line(row: Row, rate: float) -> str:
    about = " ".join(f"{k}={row[k]}" for k in ("encoder", "px", "batch", "M", "K") if k in row)
    speed = f"{row['ms']:8.2f} ms" if "ms" in row else ""
    speed += f" +-{row['ms_std']:.2f}  {row['images_per_s']:9,.0f} images/s" if "ms_std" in row else ""
    share = f"  {row['tflops']:.0f} TFLOP/s ({row['tflops'] / rate:.0%})" if "tflops" in row else ""
    start = f"  first step {row['first_step_s']:.1f} s" if "first_step_s" in row else ""
    memory = f"  {row['peak_GiB']:.2f} GiB" if "peak_GiB" in row else ""
    return f"{row['group']:7} {row['form']:17} {about:45} {speed}{share}{start}{memory}"


def write(path: Path, rows: list[Row]) -> None:
    columns = dict.fromkeys(key for row in rows for key in row)
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)


if __name__ == "__main__":
    main()
