"""Put a finished run into the results: a row in results/TABLE.csv and its metrics, compressed, beside it.

python benchmarks/record.py runs/demo --table digits --name digits-seed0 --date YYYY-MM-DD [--sample]
"""

from __future__ import annotations

import argparse
import csv
import fcntl
import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from plainly import plainly
from sample import Sample

RESULTS = Path(__file__).parent.parent / "results"
READOUTS = ("codes", "p", "vote", "kmeans_v_xi", "balanced_v_xi")
SCORES = [f"{readout}_{metric}" for readout in READOUTS for metric in ("acc", "nmi", "ari")]
SCORES += ["diversity_mean", "diversity_std"]
COLUMNS = [
    "name", "date", "data", "protocol", "recipe", "seed", "epochs", "minutes", "hardware", "torch", "commit", *SCORES, "command",
]  # fmt: skip


def row_of(run: Path, name: str, date: str, protocol: str) -> dict[str, Any]:
    """A row of the table, from the run's own files."""
    config, about, environment, summary = (
        json.loads((run / f"{file}.json").read_text()) for file in ("config", "run", "environment", "summary")
    )
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    data = os.path.relpath(about["source"], about["called_in"]) if os.path.isabs(about["source"]) else about["source"]
    row: dict[str, Any] = {
        "name": name, "date": date, "data": data, "protocol": protocol, "recipe": about["recipe"],
        "seed": config["seed"], "epochs": config["epochs"], "minutes": summary["minutes"],
        "hardware": environment["device"], "torch": environment["torch"], "command": environment["command"],
    }  # fmt: skip
    return row | scores_of(summary["scores"] or scores_by_folder(run), last)


def scores_by_folder(run: Path) -> dict[str, dict[str, float]]:
    """The scores of a run on a folder of images, where each class has a folder of its own; fit did not look at that."""
    with tempfile.TemporaryDirectory() as place:
        scores = Path(place) / "scores.json"
        how = ["--labels", "folders", "-o", str(scores)]
        subprocess.run(
            [sys.executable, "-m", "concurl", "evaluate", str(run), *how], stdout=subprocess.DEVNULL, check=True
        )
        found: dict[str, dict[str, float]] = json.loads(scores.read_text())
        return found


def scores_of(scores: dict[str, dict[str, float]], last: dict[str, Any]) -> dict[str, Any]:
    """The columns SCORES of a row, from a run's scores and the last row of its metrics."""
    found = {f"{readout}_{metric}": value for readout in READOUTS for metric, value in scores.get(readout, {}).items()}
    return found | {name: last.get(name) for name in ("diversity_mean", "diversity_std")}


def known(results: Path, table: str) -> dict[str, dict[str, str]]:
    """The rows of a table by their names."""
    path = results / f"{table}.csv"
    return {row["name"]: row for row in csv.DictReader(path.open(newline=""))} if path.exists() else {}


def keep(results: Path, table: str, row: dict[str, Any], metrics: bytes) -> None:
    """Add a row, or replace the one of that name, and put its metrics beside the table; one process at a time."""
    short = {key: f"{value:.5f}" if isinstance(value, float) and key in SCORES else value for key, value in row.items()}
    (results / "metrics").mkdir(parents=True, exist_ok=True)
    (results / "metrics" / f"{row['name']}.jsonl.gz").write_bytes(gzip.compress(metrics, mtime=0))
    with _alone_in(results):
        rows = known(results, table)
        rows.pop(row["name"], None)
        rows[row["name"]] = {"commit": _commit(), **short}
        with (results / f"{table}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows.values())


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    place = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(place, fcntl.LOCK_EX)
        yield
    finally:
        os.close(place)


def _commit() -> str:
    """Of this clone, wherever the script is called."""
    words = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--table", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--date", required=True, help="YYYY-MM-DD")
    parser.add_argument("--protocol", default="", help="in words: splits, number of images, resolution")
    parser.add_argument("--sample", action="store_true", help="this run is the one whose map is drawn for the table")
    given = parser.parse_args()
    if not (given.run / "summary.json").exists():
        parser.error(f"{given.run} holds no finished run")
    row = row_of(given.run, given.name, given.date, given.protocol)
    keep(RESULTS, given.table, row, (given.run / "metrics.jsonl").read_bytes())
    if given.sample:
        Sample.of(given.run, given.name).save(RESULTS / "samples" / f"{given.table}.npz")
    print(f"{RESULTS / given.table}.csv: {given.name}")


if __name__ == "__main__":
    plainly(main)
