"""What a run's folder says about the run: everything that the page shows comes from here."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concurl.clustering.assign import UNSURE
from concurl.config import Config
from concurl.data.imageset import ImageSet
from concurl.errors import UserError, call
from concurl.runs.clusternames import names_of
from concurl.runs.provenance import Provenance
from concurl.runs.run import Result
from concurl.runs.runfolder import config_of
from concurl.runs.spreadsheet import read_assignments, read_table
from concurl.runs.summary import read_object, read_summary
from concurl.training.runlog import read_metrics

# Control characters would vanish or break the line: they are shown by Unicode's pictures of them.
_CONTROLS = {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421}
_CONTROLS |= dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
_SURROGATES = re.compile("[\ud800-\udfff]")


def shown(text: object) -> str:
    """Text that the page can show: undecodable bytes and control characters become visible, one sign each."""
    return _SURROGATES.sub("\ufffd", str(text)).translate(_CONTROLS)


@dataclass(frozen=True)
class RunFacts:
    """A finished run. Row i of every array is row i of assignments.csv."""

    title: str
    paths: Sequence[str]  # as shown on the page, not as needed to open the file
    cluster: NDArray[np.int64]
    confidence: NDArray[np.float64]  # NaN where the csv has no number, as in the next three
    margin: NDArray[np.float64]
    agreement: NDArray[np.float64]
    outlier: NDArray[np.float64]
    unsure: NDArray[np.bool_]
    names: tuple[str, ...]  # one per cluster, as shown on the page
    given: dict[int, str]  # the names of names.json
    embeddings: NDArray[np.float32] | None  # (N, d)
    epochs: tuple[dict[str, Any], ...]
    summary: dict[str, Any]
    skipped: tuple[tuple[str, str, str], ...]  # path, status, reason
    config: Config
    environment: dict[str, Any]
    provenance: Provenance

    @property
    def n_clusters(self) -> int:
        return len(self.names)

    @property
    def sizes(self) -> NDArray[np.int64]:
        return np.bincount(self.cluster, minlength=self.n_clusters)

    @property
    def members(self) -> list[NDArray[np.int64]]:
        """For each cluster the rows of its images."""
        return np.split(np.argsort(self.cluster, kind="stable"), np.cumsum(self.sizes)[:-1])

    @property
    def minutes(self) -> float:
        """How long the run took; NaN where it does not say."""
        return _number(self.summary.get("minutes"))

    @property
    def reasons(self) -> str:
        """Why files were left out, in words, the most frequent first."""
        return ", ".join(f"{n:,} {why}" for why, n in Counter(why for _, why, _ in self.skipped).most_common())

    @classmethod
    def read(cls, folder: Path) -> RunFacts:
        """The facts in a run's folder. config.json, run.json and assignments.csv must be there."""
        rows, config = read_assignments(folder), config_of(folder)
        # As fit refuses more clusters than images, a larger number is damage; pages and tables grow with it.
        k = min(config.n_clusters, len(rows))
        given = {c: name for c, name in names_of(folder).items() if 0 <= c < k}
        return cls(
            title=shown(folder.resolve().name),
            paths=tuple(shown(row["path"]) for row in rows),
            cluster=_clusters(rows, folder / "assignments.csv", k),
            confidence=_column(rows, "confidence"),
            margin=_column(rows, "margin"),
            agreement=_column(rows, "agreement"),
            outlier=_column(rows, "outlier"),
            unsure=np.array([row["status"] == "unsure" for row in rows]),
            names=_names(k, given),
            given=given,
            embeddings=_embeddings(folder / "embeddings.npy", len(rows)),
            epochs=tuple(read_metrics(folder / "metrics.jsonl")),
            summary=read_summary(folder),
            skipped=tuple(_skipped(folder / "skipped.csv")),
            config=config,
            environment=read_object(folder / "environment.json"),
            provenance=Provenance.read(folder),
        )

    @classmethod
    def of(cls, result: Result, images: ImageSet) -> RunFacts:
        """The facts of a run as it ends, before or without a folder: all that a verdict needs, and no copy of what is large."""
        config, found = result.trained.config, result.assignment
        return cls(
            title="",
            paths=images.names,
            cluster=found.labels,
            confidence=found.confidence.astype(np.float64),
            margin=np.full(len(images), math.nan),
            agreement=found.agreement.astype(np.float64),
            outlier=found.outlier.astype(np.float64),
            unsure=found.agreement < UNSURE,
            names=_names(config.n_clusters, {}),
            given={},
            embeddings=found.embeddings,
            epochs=tuple(result.metrics),
            summary={"warnings": result.warnings},
            skipped=tuple((skip.path, skip.status, skip.reason) for skip in images.skipped),
            config=config,
            environment={},
            provenance=Provenance(""),
        )

    def without_scores(self) -> RunFacts:
        """The same run, as if it had never been scored."""
        summary = {key: value for key, value in self.summary.items() if key != "scores"}
        epochs = tuple({k: v for k, v in epoch.items() if k not in ("acc", "nmi", "ari")} for epoch in self.epochs)
        return replace(self, summary=summary, epochs=epochs)

    def series(self, key: str) -> NDArray[np.float64]:
        """One number per epoch from metrics.jsonl; NaN where it was not logged."""
        return np.array([_number(epoch.get(key)) for epoch in self.epochs])


def mean_known(values: NDArray[np.float64]) -> float:
    """The mean of those that are not NaN; NaN if there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan


def _anew(path: Path) -> str:
    return call("fit", "--resume", "-o", path.parent)


def _embeddings(path: Path, n: int) -> NDArray[np.float32] | None:
    if not path.is_file():
        return None
    try:
        z = np.lib.format.open_memmap(path, mode="r")  # np.load would also open archives of arrays
        if z.dtype.kind != "f":
            raise ValueError(f"numbers of type {z.dtype}")
    except (OSError, ValueError, EOFError, RecursionError, MemoryError) as error:
        raise UserError(f"{path}: no valid array ({error}); make it anew with {_anew(path)}") from None
    if z.ndim != 2 or len(z) != n:
        raise UserError(f"{path}: shape {z.shape} for {n} rows in assignments.csv; write both with {_anew(path)}")
    return np.asarray(z, dtype=np.float32)


def _clusters(rows: list[dict[str, str]], path: Path, k: int) -> NDArray[np.int64]:
    clusters = np.array([int(row["cluster"]) for row in rows], dtype=np.int64)
    if (largest := int(clusters.max())) >= k:
        raise UserError(
            f"{path}: cluster {largest} is none of the {k} that there can be; make it anew with {_anew(path)}"
        )
    return clusters


def _names(k: int, given: dict[int, str]) -> tuple[str, ...]:
    names = [shown(given.get(c, f"Cluster {c}")) for c in range(k)]
    while max((used := Counter(names)).values()) > 1:  # parts of one kind may share a name: the number tells them apart
        names = [f"{name} ({c})" if used[name] > 1 else name for c, name in enumerate(names)]
    return tuple(names)


def _skipped(path: Path) -> Iterator[tuple[str, str, str]]:
    try:
        rows = read_table(path)[1] if path.is_file() else []
    except csv.Error as error:
        raise UserError(f"{path}: no valid csv ({error}); delete it, the page can do without") from None
    for row in rows:
        name, status, reason, *_ = [*map(shown, row), "", ""]
        yield name, status, reason


def _column(rows: list[dict[str, str]], key: str) -> NDArray[np.float64]:
    return np.array([_number(row.get(key)) for row in rows])


def _number(value: object) -> float:
    """A finite number or NaN, so that an odd cell spoils nothing else."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan
