"""The paper's ablations on a folder of class folders, one training after the other, each a row of the results.

    python benchmarks/ablations.py STL10 --table stl10 --date 2026-11-15 --set epochs=200 --minutes 25 [--share 1/3]

Rows that are already in the table are left out, and no run begins that would not end within the minutes: call it again to go
on. All runs of a process share the compiled blocks of the network. With --share several processes divide the rows among them,
which pays on a card that computes for all of them at once (docs/performance.md, MPS). Labels (the names of the folders) are
used only for scores.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from concurl.config import Config
from concurl.data.sources import open_source
from concurl.recipes import recipe
from concurl.runs import run
from concurl.runs.parts import Part
from concurl.training.device import Arithmetic
from plainly import plainly
from record import keep, known, scores_of

LOSSES = {"byol": (1, 0, 0), "soft": (0, 1, 0), "byol-soft": (1, 1, 0), "concurl": (1, 1, 1)}


def plan() -> Iterator[tuple[str, dict[str, Any]]]:
    """The paper's loss rows with two seeds, then its sweeps over M and the projection's dimension with one."""
    for seed in (0, 1):
        for name, (alpha, beta, gamma) in LOSSES.items():
            yield f"{name}-seed{seed}", {"alpha": alpha, "beta": beta, "gamma": gamma, "seed": seed}
    for dim in (32, 128, 256):  # 64 is concurl-seed0
        yield f"projection-M100-dim{dim}", {"projection_dim": dim}
    for m in (10, 30, 50):
        yield f"projection-M{m}-dim64", {"n_transforms": m}
    for m in (10, 30, 50, 100):
        yield f"diagonal-M{m}", {"transforms": "diagonal", "n_transforms": m}


def row_of(name: str, config: Config, command: str, result: run.Result, minutes: float) -> dict[str, Any]:
    assert result.scores is not None
    return {
        "name": name, "seed": config.seed, "epochs": config.epochs, "minutes": round(minutes, 2), "command": command,
        "hardware": str(Arithmetic.of(config)), "torch": torch.__version__, **scores_of(result.scores, result.metrics[-1]),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="a folder of images for each class")
    parser.add_argument("--table", required=True, help="results/TABLE.csv")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent.parent / "results")
    parser.add_argument("--recipe", default="paper-stl10")
    parser.add_argument("--set", nargs="*", default=[], metavar="OPTION=VALUE", help="for all runs, values as in json")
    parser.add_argument("--minutes", type=float, default=1e9, help="of all runs together")
    parser.add_argument(
        "--share", type=Part.parse, default=Part(1, 1), metavar="I/N", help="every N-th row, from the I-th on"
    )
    parser.add_argument("--date", required=True, help="YYYY-MM-DD")
    given = parser.parse_args()
    shared = {key: _value(value) for key, _, value in (item.partition("=") for item in given.set)}
    start = recipe(given.recipe).replace(**{"monitor_every": 10, **shared})
    images = open_source(given.folder, image_size=start.image_size, largest=run.largest_size(start)).images
    classes = [name.split("/")[0] for name in images.names]
    labels = np.unique(classes, return_inverse=True)[1]
    begun, longest = time.monotonic(), 0.0
    for kind, changes in list(plan())[given.share.number - 1 :: given.share.of]:
        name = f"{given.table}-{kind}"
        left = given.minutes - (time.monotonic() - begun) / 60
        if name in known(given.results, given.table) or left < longest:
            continue
        config, _ = run.settled(start.replace(**changes), images)
        started = time.monotonic()
        result = run.fit(images, config, labels=labels)
        minutes = (time.monotonic() - started) / 60
        longest = max(longest, minutes)
        options = " ".join(f"--{key.replace('_', '-')} {value}" for key, value in (shared | changes).items())
        command = f"concurl fit ./{given.folder.name} --recipe {given.recipe} {options} -o runs/{name}"
        row = row_of(name, config, command, result, minutes)
        row |= {"date": given.date, "data": given.folder.name, "recipe": given.recipe}
        row["protocol"] = f"{len(images):,} images"
        keep(given.results, given.table, row, "".join(json.dumps(line) + "\n" for line in result.metrics).encode())
        print(
            f"{name}: codes {row.get('codes_acc')}, k-means on v_xi {row['kmeans_v_xi_acc']}, {minutes:.1f} min",
            flush=True,
        )
        del result
        gc.collect()  # a captured graph holds the card's memory until then


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


if __name__ == "__main__":
    plainly(main)
