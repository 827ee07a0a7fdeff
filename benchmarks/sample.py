"""A few images of a run as points with their classes and clusters: what a picture of the run needs, in a small file.

    python benchmarks/sample.py runs/cifar10 --name concurl-355 -o results/samples/cifar10.npz

The file (about 200 kB) is made where the run and its images are; benchmarks/figures.py draws it, there or elsewhere.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from concurl.clustering.evaluate import read_labels
from concurl.commands.images import open_again
from concurl.errors import UserError
from concurl.report import RunFacts
from plainly import plainly

POINTS = 2_000  # more would hide each other on paper
AXES = 50  # what report/layout.py gives to t-SNE: no more needs to travel


@dataclass(frozen=True)
class Sample:
    """Row i of every array is one image."""

    z: NDArray[np.float16]  # (P, 50 at most) the embeddings' principal axes
    cluster: NDArray[np.int64]
    label: NDArray[np.int64]  # -1 where there is none
    classes: tuple[str, ...]
    name: str  # of the run
    images: int  # that the run had

    @classmethod
    def of(cls, run: Path, name: str = "", labels: Path | None = None) -> Sample:
        """Of a run's folder; the classes are the source's own, or those of a csv with the columns path and label."""
        facts = RunFacts.read(run)
        if facts.embeddings is None:
            raise UserError(f"{run}: no embeddings.npy; bring it from where the run was made, or a sample of it")
        label: NDArray[np.int64] | None
        classes: Sequence[str] | None
        if labels is not None:
            label, classes = read_labels(labels, facts.paths)
        else:
            opened = open_again(facts.provenance, facts.config)
            label, classes = opened.labels, opened.classes
        if label is None:
            label = np.full(len(facts.cluster), -1)
        if len(label) != len(facts.cluster):
            raise UserError(
                f"{run}: {len(facts.cluster)} rows, but {facts.provenance.source} has {len(label)} images now"
            )
        rows = np.random.default_rng(0).permutation(len(label))[:POINTS]
        z = np.nan_to_num(facts.embeddings[rows])
        z = PCA(min(AXES, *z.shape), svd_solver="full").fit_transform(z)
        named = tuple(classes or ())
        return cls(z.astype(np.float16), facts.cluster[rows], label[rows], named, name or facts.title, len(label))

    @classmethod
    def read(cls, path: Path) -> Sample:
        with np.load(path, allow_pickle=False) as file:
            return cls(
                file["z"], file["cluster"].astype(np.int64), file["label"].astype(np.int64),
                tuple(file["classes"].tolist()), str(file["name"]), int(file["images"]),
            )  # fmt: skip

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(
            path, z=self.z, cluster=self.cluster.astype(np.int16), label=self.label.astype(np.int16),
            classes=np.array(self.classes, dtype=np.str_), name=np.array(self.name), images=np.array(self.images),
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.npz")
    parser.add_argument("--name", default="", help="as results/*.csv call the run; the folder's name if not given")
    parser.add_argument("--labels", type=Path, metavar="FILE", help="csv with the columns path and label")
    given = parser.parse_args()
    Sample.of(given.run, given.name, given.labels).save(given.output)
    print(f"{given.output}: {given.output.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    plainly(main)
