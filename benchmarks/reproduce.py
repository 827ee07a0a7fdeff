"""Run rows of a results table again, each by its own command, and put the scores side by side.

    python benchmarks/reproduce.py digits digits-seed0 --folder again

The commands run in FOLDER, where their -o then lies. A set that is a folder of images must lie there, too, with a folder for
each class. A run that is finished there is not run again, and one that was stopped goes on. Commands with --from need the run
that they name: list its row first. The exit code is 1 if an ACC differs by more than --within, and that of the command if one
fails. The tables of speeds, and unequal, are made by scripts of their own (throughput.py, unequal.py).
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from concurl.errors import UserError
from plainly import plainly
from record import RESULTS, known, scores_by_folder

METRICS = ("acc", "nmi", "ari")


def output_of(command: str) -> str:
    """The run's folder, as the command names it."""
    words = shlex.split(command)
    return words[words.index("-o") + 1] if "-o" in words else "runs/demo"


def run_again(command: str, folder: Path) -> Path:
    """The finished run of the command, below `folder`."""
    run = folder / output_of(command)
    if (run / "environment.json").exists():
        holds = json.loads((run / "environment.json").read_text())["command"]
        if shlex.split(holds) != shlex.split(command):  # tables have some names of folders in common
            raise UserError(f"{run} holds the run of another command, {holds}; choose another --folder")
    if (run / "summary.json").exists():
        return run
    words = shlex.split(command)[1:]
    if (run / "config.json").exists() and words[0] == "fit":
        words = ["fit", "--resume", "-o", output_of(command)]
    data = str(Path(os.environ.get("CONCURL_DATA", "data")).resolve())  # from here, and not from the runs' folder
    subprocess.run(
        [sys.executable, "-m", "concurl", *words], cwd=folder, env=os.environ | {"CONCURL_DATA": data}, check=True
    )
    return run


def tables(results: Path) -> list[str]:
    """The tables whose rows are runs, each with its command."""
    return sorted(path.stem for path in results.glob("*.csv") if "command" in path.open().readline().strip().split(","))


def compared(row: dict[str, str], run: Path) -> tuple[str, float]:
    """A line with the scores of both, and how far the ACC differ."""
    way = "codes" if row["codes_acc"] else "kmeans_v_xi"  # BYOL alone has no codes
    summary = json.loads((run / "summary.json").read_text())
    scores = summary["scores"] or scores_by_folder(run)
    before, now = [float(row[f"{way}_{m}"]) for m in METRICS], [scores[way][m] for m in METRICS]
    shown = [" / ".join(f"{value:.3f}" for value in values) for values in (before, now)]
    minutes = f"{float(row['minutes']):.1f} and {summary['minutes']:.1f} min"
    return f"{row['name']:28} {way:11} {shown[0]}   {shown[1]}   {now[0] - before[0]:+.3f}   {minutes}", now[
        0
    ] - before[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", help="the name of a csv in results/, such as cifar10")
    parser.add_argument("rows", nargs="*", help="names of its rows; all of them if none is named")
    parser.add_argument("--folder", type=Path, default=Path("again"), help="where the runs go (default: again)")
    parser.add_argument("--within", type=float, default=0.02, help="ACC that may differ (default: 0.02)")
    parser.add_argument("--results", type=Path, default=RESULTS, help=argparse.SUPPRESS)
    given = parser.parse_intermixed_args()
    if given.table not in (there := tables(given.results)):
        parser.error(f"no table of runs {given.table}; there are: {', '.join(there)}")
    table = known(given.results, given.table)
    if strangers := [name for name in given.rows if name not in table]:
        parser.error(f"no row {strangers[0]} in {given.table}; there are: {', '.join(table)}")
    given.folder.mkdir(parents=True, exist_ok=True)
    found = []
    for name in given.rows or table:
        try:
            found.append(compared(table[name], run_again(table[name]["command"], given.folder)))
        except subprocess.CalledProcessError as error:  # it has said why
            print(f"{name}: not run again; its command is: {table[name]['command']}", file=sys.stderr)
            return error.returncode
        except KeyboardInterrupt:
            return 130
        print(found[-1][0], flush=True)
    return int(any(abs(difference) > given.within for _, difference in found))


if __name__ == "__main__":
    plainly(main)
