"""Classes of unequal size: the digits with a long tail, and what --balance makes of them.

    python benchmarks/unequal.py --ratio 10 3 1 --seeds 0 1 2 --folder /tmp/unequal

RATIO is how many times the most frequent digit outnumbers the rarest; those between fall geometrically, and a seed draws which
is which. One training to a set, then `fit --from` it with each balance. A row for each goes to results/unequal.csv; rows that
it has already are left out. Labels only score.
"""

from __future__ import annotations

import argparse
import csv
import fcntl
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from concurl.cli import main as concurl
from concurl.clustering.metrics import scores

TABLE = Path(__file__).parent.parent / "results" / "unequal.csv"
COLUMNS = ("ratio", "seed", "images", "balance", "acc", "nmi", "ari")
BALANCES = (1, 0.9, 0.8, 0.7, 0.5, 0)


def write_digits(folder: Path, ratio: float, seed: int) -> dict[str, int]:
    """The pictures as files; returns the digit that each shows."""
    digits, dice, shown = load_digits(), np.random.default_rng(seed), {}
    folder.mkdir(parents=True, exist_ok=True)
    for rank, digit in enumerate(dice.permutation(10)):
        all_of_it = dice.permutation(np.flatnonzero(digits.target == digit))
        for i in all_of_it[: round(len(all_of_it) * ratio ** (-rank / 9))]:
            Image.fromarray((digits.images[i] * (255 / 16)).round().astype(np.uint8)).save(folder / f"{i:04}.png")
            shown[f"{i:04}.png"] = int(digit)
    return shown


def scored(run: Path, shown: dict[str, int]) -> dict[str, float]:
    with open(run / "assignments.csv", newline="") as file:
        found = {row["path"]: int(row["cluster"]) for row in csv.DictReader(file)}
    return scores([shown[path] for path in found], list(found.values()))


def done() -> set[tuple[str, str, str]]:
    if not TABLE.exists():
        return set()
    with open(TABLE, newline="") as file:
        return {(row["ratio"], row["seed"], row["balance"]) for row in csv.DictReader(file)}


def add(row: dict[str, object]) -> None:
    """Several of these may run beside each other."""
    with open(TABLE, "a", newline="") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if file.tell() == 0:
            writer.writeheader()
        writer.writerow(row)


def summary() -> list[str]:
    """The rows as a table: ACC for each ratio and balance, mean and deviation over the seeds."""
    with open(TABLE, newline="") as file:
        rows = list(csv.DictReader(file))
    lines = [
        "| largest to smallest | seeds |" + "".join(f" {b:g} |" for b in BALANCES),
        "|---" * (2 + len(BALANCES)) + "|",
    ]
    for ratio in sorted({float(row["ratio"]) for row in rows}):
        own = [row for row in rows if float(row["ratio"]) == ratio]
        by_balance = [[float(row["acc"]) for row in own if float(row["balance"]) == balance] for balance in BALANCES]
        cells = (f" {_over_seeds(accs)} |" for accs in by_balance)
        lines.append(f"| {ratio:g} : 1 | {len({row['seed'] for row in own})} |" + "".join(cells))
    return lines


def _over_seeds(accs: Sequence[float]) -> str:
    """Mean and deviation. That of a sample, as in all our tables: with three seeds the other one is a fifth smaller."""
    if len(accs) < 2:
        return "".join(f"{acc:.3f}" for acc in accs)
    return f"{mean(accs):.3f} ± {stdev(accs):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ratio", type=float, nargs="+", default=[10, 3, 1])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--folder", type=Path, required=True, help="for pictures and runs")
    given = parser.parse_args()
    for ratio in given.ratio:
        for seed in given.seeds:
            place = given.folder / f"{ratio:g}-{seed}"
            shown = write_digits(place / "pictures", ratio, seed)
            first = place / f"balance-{BALANCES[0]}"
            for balance in BALANCES:
                if (f"{ratio:g}", str(seed), f"{balance:g}") in done():
                    continue
                run = place / f"balance-{balance}"
                # Prototypes from plain k-means, and all images heard, as the recipe had it when this table was made.
                new = [str(place / "pictures"), "--recipe", "digits", "-k", "10", "--seed", str(seed)]
                new += ["--prototype-init", "kmeans", "--min-sureness", "0"]
                source = new if run == first else ["--from", str(first), "--balance", str(balance)]
                if concurl(["fit", *source, "-o", str(run), "--overwrite", "--no-report", "--quiet"]):
                    raise SystemExit(f"{run} failed")
                found = {name: f"{value:.3f}" for name, value in scored(run, shown).items()}
                add({"ratio": f"{ratio:g}", "seed": seed, "images": len(shown), "balance": f"{balance:g}", **found})


if __name__ == "__main__":
    main()
