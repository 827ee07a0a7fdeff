"""Put a finished run into the results: a row in results/TABLE.csv and its metrics, compressed, beside it.

python benchmarks/record.py runs/demo --table digits --name digits-seed0
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import subprocess
from pathlib import Path

RESULTS = Path(__file__).parent.parent / "results"
READOUTS = ("codes", "p", "vote", "kmeans_v_xi")
COLUMNS = [
    "name", "date", "data", "protocol", "recipe", "seed", "epochs", "minutes", "hardware", "torch", "commit",
    *(f"{readout}_{metric}" for readout in READOUTS for metric in ("acc", "nmi", "ari")),
    "diversity_mean", "diversity_std", "command",
]  # fmt: skip


def row_of(run: Path, name: str, date: str, protocol: str, commit: str) -> dict[str, object]:
    """Everything a row says, read from the run's own files."""
    config, about, environment, summary = (
        json.loads((run / f"{file}.json").read_text()) for file in ("config", "run", "environment", "summary")
    )
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    row: dict[str, object] = {
        "name": name, "date": date, "data": about["source"], "protocol": protocol, "recipe": about["recipe"],
        "seed": config["seed"], "epochs": config["epochs"], "minutes": summary["minutes"],
        "hardware": environment["device"], "torch": environment["torch"], "commit": commit,
        "diversity_mean": _short(last.get("diversity_mean")), "diversity_std": _short(last.get("diversity_std")),
        "command": environment["command"],
    }  # fmt: skip
    for readout in READOUTS:
        for metric, value in (summary["scores"] or {}).get(readout, {}).items():
            row[f"{readout}_{metric}"] = _short(value)
    return row


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--table", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--date", required=True, help="YYYY-MM-DD")
    parser.add_argument("--protocol", default="", help="in words: splits, number of images, resolution")
    given = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    row = row_of(given.run, given.name, given.date, given.protocol, commit)
    path = RESULTS / f"{given.table}.csv"
    rows = list(csv.DictReader(path.open(newline=""))) if path.exists() else []
    rows = [old for old in rows if old["name"] != given.name] + [{key: str(value) for key, value in row.items()}]
    RESULTS.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    (RESULTS / "metrics").mkdir(exist_ok=True)
    target = RESULTS / "metrics" / f"{given.name}.jsonl.gz"
    target.write_bytes(gzip.compress((given.run / "metrics.jsonl").read_bytes(), mtime=0))
    print(f"{path}: {given.name}; {target}")


if __name__ == "__main__":
    main()
