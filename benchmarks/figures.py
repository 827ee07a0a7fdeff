"""Draw docs/figures/*.svg from what is recorded in results/.

python benchmarks/figures.py
python benchmarks/figures.py --tsne runs/demo -o tsne.svg    of any run's folder, or of a sample of it (sample.py)
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from concurl.clustering.metrics import match_clusters
from concurl.errors import no_such
from concurl.report import palette
from concurl.report.layout import Layout, lay_out
from peers import PEERS
from plainly import plainly
from plot import WIDTH, Plot, document, legend, lines, text
from record import RESULTS, known
from sample import Sample

ROOT = Path(__file__).parent.parent
FIGURES = ROOT / "docs" / "figures"
RUNS = {
    "modern-1000": "CIFAR-10, ConCURL, 850 epochs of BYOL before",
    "modern-1000-soft": "CIFAR-10, the same without the consensus loss: BYOL + soft",
    "concurl-300-seed0": "CIFAR-10, ConCURL, 255 epochs of BYOL before",
    "byol-soft-300-seed0": "CIFAR-10, the same without the consensus loss",
    "paper-cifar10-385": "CIFAR-10, the paper's recipe, all losses from the start",
    "digits-seed0": "digits, ConCURL, 90 epochs of BYOL before",
}
# The most telling of peers.py. They are levels and not points, because their times are from other machines.
LEVELS = (
    "ProPos",
    "BYOL + k-means by ProPos' recipe",
    "SCAN",
    "ConCURL, the paper's",
    "BYOL + k-means, the paper's",
)
_SWEEP = re.compile(r"-projection-M100-dim(\d+)$")  # as ablations.py names them
_ROUNDS = 8


def metrics(name: str, results: Path = RESULTS) -> list[dict[str, Any]]:
    """The rows of a recorded run, one per epoch."""
    with gzip.open(results / "metrics" / f"{name}.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


def rows_of(table: str, results: Path = RESULTS) -> list[dict[str, str]]:
    return list(known(results, table).values())


def by_run(rows: Sequence[dict[str, str]]) -> dict[str, list[dict[str, str]]]:
    """The rows of each run, which is named without its seeds."""
    found: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        found.setdefault(row["name"].partition("-seed")[0], []).append(row)
    return found


def sweep(rows: Sequence[dict[str, str]]) -> dict[str, str]:
    """The runs of a sweep over the projection's dimension, smallest first: name in the table -> what it is."""
    dims = {int(found[1]): row["name"] for row in rows if (found := _SWEEP.search(row["name"]))}
    default = [row["name"] for row in rows if row["name"].endswith("-concurl-seed0")]
    if dims and default:  # 64 is what the loss rows were trained with
        dims[64] = default[0]
    return {dims[dim]: f"projection_dim {dim}" for dim in sorted(dims)}


def diversity(runs: dict[str, str], results: Path = RESULTS) -> str:
    """Mean pairwise NMI of the ensemble's members, banded by its deviation, over the epochs that clustering has had."""
    curves, begins = [], []
    for name in runs:
        rows = metrics(name, results)
        begins.append(next(row["epoch"] for row in rows if row.get("l2") is not None or row.get("l3") is not None))
        looks = [row for row in rows if row.get("diversity_mean") is not None]
        curves.append(
            (
                [row["epoch"] + 1 - begins[-1] for row in looks],
                [row["diversity_mean"] for row in looks],
                [row["diversity_std"] for row in looks],
            )
        )
    low = min(mean - spread for _, means, spreads in curves for mean, spread in zip(means, spreads, strict=True))
    since = "epochs since clustering began" if any(begins) else "epochs"
    plot = Plot(
        (0, max(max(x) for x, _, _ in curves)),
        (max(0, math.floor(20 * low) / 20), 1),
        (since, "pairwise NMI of the ensemble's members: mean and one deviation"),
    )
    titles = list(runs.values())
    keys, end = legend(titles, plot.left, plot.height + 4, columns=4 if max(map(len, titles)) < 20 else 1)
    drawn = [plot.curve(i, *curve) for i, curve in enumerate(curves)]
    words = "; ".join(
        f"{title}: from {means[0]:.2f} to {means[-1]:.2f}" for title, (_, means, _) in zip(titles, curves, strict=True)
    )
    return document(end + 8, f"Pairwise NMI. {words}.", lines(len(runs)), [plot.axes(), *drawn, keys])


def clock(rows: Sequence[dict[str, Any]]) -> list[float]:
    """Minutes since the start: the clock of a run that went on from another's weights began anew."""
    before, last, minutes = 0.0, 0.0, []
    for row in rows:
        if row["minutes"] < last:
            before += last
        last = row["minutes"]
        minutes.append(before + last)
    return minutes


def score_of(row: dict[str, str]) -> tuple[float, str]:
    """ACC by codes, the method's answer; runs without clusters of their own have only k-means."""
    if row["codes_acc"]:
        return float(row["codes_acc"]), "codes"
    return float(row["kmeans_v_xi_acc"]), "k-means on v_xi"


def acc_minutes(rows: Sequence[dict[str, str]], levels: dict[str, float], strong: str, results: Path = RESULTS) -> str:
    """ACC during training, where labels were given, and that of all images at the end of the run."""
    curves, ends, entries, told = [], [], [], []
    for i, (run, seeds) in enumerate(by_run(rows).items()):  # a colour for each run, whatever its seeds
        for row in seeds:
            logged = metrics(row["name"], results)
            looks = [
                (at, seen["acc"]) for at, seen in zip(clock(logged), logged, strict=True) if seen.get("acc") is not None
            ]
            acc, readout = score_of(row)
            curves.append((i, looks))
            ends.append((i, float(row["minutes"]), acc, readout != "codes"))
            told.append(f"{row['name']}: {acc:.3f} by {readout} after {float(row['minutes']):g} minutes")
        scores = [score_of(row)[0] for row in seeds]
        mean = f"{sum(scores) / len(scores):.3f}" + (f", mean of {len(seeds)} seeds" if len(seeds) > 1 else "")
        entries.append(f"{run}: {mean}, by {readout}" if readout != "codes" else f"{run}: {mean}")
    lowest = min(
        [acc for _, looks in curves for _, acc in looks] + [acc for *_, acc, _ in ends] + list(levels.values())
    )
    hardware = {row["hardware"].split(",")[0] for row in rows}
    on = f" on one {hardware.pop()}" if len(hardware) == 1 else ""
    plot = Plot(
        (0, math.ceil(max(at for _, at, _, _ in ends))),
        (math.floor(10 * lowest) / 10, 1),
        (f"minutes{on}, compiling and scoring included", "ACC"),
        right=240,
    )
    drawn = [plot.curve(i, [at for at, _ in looks], [acc for _, acc in looks]) for i, looks in curves if looks]
    drawn += [plot.dot(i, at, acc, hollow=hollow) for i, at, acc, hollow in ends]
    first = min([at for _, looks in curves for at, _ in looks[:1]] or [plot.x[1]])
    if first > plot.x[1] / 2:  # then there is room for a note, and a need
        drawn.append(text(plot.left + 8, plot.top + 16, "BYOL trains alone: no clusters yet to score"))
    keys, end = legend(entries, plot.left, plot.height + 4, columns=2)
    key = "line: while training, on a sample of the images; dot: by codes, at the end, on all; ring: by k-means"
    parts = [plot.axes(), plot.levels(levels, strong), *drawn, keys, text(plot.left, end + 12, key)]
    return document(end + 24, f"ACC against minutes. {'; '.join(told)}.", lines(len(entries)), parts)


def tsne(sample: Sample) -> str:
    """The points twice: in the colours of classes, and of clusters, which have the colour of the class they match."""
    laid = lay_out(sample.z.astype(np.float32))
    label, cluster = sample.label[laid.rows], sample.cluster[laid.rows]
    labelled = bool((label >= 0).all())
    by_cluster, names = cluster, [f"cluster {i}" for i in range(int(cluster.max()) + 1)]
    if labelled:
        by_cluster, strangers = _in_class_colours(label, cluster)
        names = [*sample.classes, *(f"cluster {i}, of no class" for i in strangers)]
    panels = [("true class", label)] if labelled else []
    panels.append(("cluster, in the colour of its class" if labelled else "cluster", by_cluster))
    side = (WIDTH - 24 * (len(panels) + 1)) // len(panels)
    drawn = []
    for i, (title, colour) in enumerate(panels):
        left = 24 + i * (side + 24)
        drawn.append(Markup('<text class="name" x="{}" y="22">{}</text>').format(left, title))
        drawn += _points(laid, colour, left, 34, side)
    keys, end = legend(names, 24, side + 50, columns=5 if max(map(len, names)) < 16 else 3)
    share = f"{len(laid.rows):,} of {sample.images:,}" if len(laid.rows) < sample.images else f"all {sample.images:,}"
    caption = f"{sample.name}: {share} images; {laid.method}"
    return document(
        end + 24,
        f"Map of the embeddings: {caption}.",
        palette.pairs(len(names)),
        [*drawn, keys, text(24, end + 12, caption)],
    )


def _in_class_colours(label: NDArray[np.int64], cluster: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[int]]:
    """For every point the class of its cluster; clusters without a class are numbered after the classes."""
    match = match_clusters(label, cluster)
    strangers = sorted(set(cluster.tolist()) - set(match))
    first = int(label.max()) + 1
    match |= {stranger: first + i for i, stranger in enumerate(strangers)}
    return np.array([match[i] for i in cluster.tolist()]), strangers


def _points(laid: Layout, colour: NDArray[np.int64], left: int, top: int, side: int) -> Iterator[Markup]:
    # One path holds many points, which keeps the file small; several rounds over the colours, so that none lies on top.
    xy = np.column_stack([left, top]) + 2 + (side - 4) * laid.xy
    for part in np.array_split(np.arange(len(xy)), _ROUNDS):
        for c in np.unique(colour[part]):
            d = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in xy[part[colour[part] == c]])
            yield Markup('<path class="points c{}" d="{}"/>').format(int(c), d)


def of_tables() -> dict[str, str]:
    """The figures that the tables and metrics of results/ alone decide: name -> svg."""
    levels = {short: acc for who, acc, _, _ in PEERS["cifar10"] if (short := who.split(" (")[0]) in LEVELS}
    found = {
        "diversity": diversity(RUNS),
        "acc-minutes": acc_minutes(rows_of("cifar10"), levels, strong="ConCURL, the paper's"),
    }
    if dims := sweep(rows_of("stl10")):
        found["diversity-stl10"] = diversity(dims)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tsne", type=Path, metavar="RUN", help="draw this run's folder, or sample, and nothing else")
    parser.add_argument("--labels", type=Path, metavar="FILE", help="csv with the columns path and label, for --tsne")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.svg", default=FIGURES / "tsne.svg")
    given = parser.parse_args()
    if given.tsne is not None:
        if not given.tsne.exists():
            raise no_such(given.tsne)
        folder = given.tsne.is_dir()
        sample = Sample.of(given.tsne, labels=given.labels) if folder else Sample.read(given.tsne)
        given.output.write_text(tsne(sample))
        return
    for name, svg in of_tables().items():
        (FIGURES / f"{name}.svg").write_text(svg)
    for path in sorted((RESULTS / "samples").glob("*.npz")):
        (FIGURES / f"tsne-{path.stem}.svg").write_text(tsne(Sample.read(path)))


if __name__ == "__main__":
    plainly(main)
