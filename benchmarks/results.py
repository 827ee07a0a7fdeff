"""Write docs/results.md from results/*.csv, with the paper's and the peers' figures beside ours.

python benchmarks/results.py
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from statistics import mean, stdev

import notes
from figures import FIGURES, ROOT, by_run, clock, metrics, rows_of, score_of
from peers import PAPER_ABLATIONS, PEERS
from ranking import ranked
from record import READOUTS
from unequal import TABLE, summary

Rows = Sequence[dict[str, str]]


def section(name: str, rows: Rows) -> list[str]:
    """A data set: ours beside the others', all our runs, what they look like, and how to make them again."""
    lines = [f"## {notes.TITLES[name]}", ""]
    if name in PEERS:
        lines += [*beside(name, rows), ""]
    if name == "stl10":
        lines += [*ablations(name, rows), ""]
    note = notes.NOTES[name]
    if name in notes.FOUR_LOSSES:
        note = note.replace("{four_losses}", "\n".join(four_losses(name, rows)))
    if name == "cifar10":
        note = note.replace("{modern}", _each(by_run(rows)["modern-1000"]))
    lines.append(note)
    lines += ["<details><summary>All runs, with their commands</summary>", "", *runs(rows), ""]
    lines += [*(f"- {row['name']}: `{row['command']}`" for row in rows), "", "</details>", ""]
    if name == "cifar10":
        silent = [row["name"] for row in rows if not any(seen.get("acc") is not None for seen in metrics(row["name"]))]
        said = f" Of {', '.join(silent)} only the last score is known." if silent else ""
        lines += [notes.ACC_MINUTES.format(silent=said), time_to_paper(rows)]
    for kind, words in (("diversity", notes.SWEEP), ("tsne", notes.TSNE)):
        if (FIGURES / f"{kind}-{name}.svg").exists():
            lines.append(words.format(name=name))
    return lines


def beside(name: str, rows: Rows) -> list[str]:
    """Everybody's final scores, best first, ours in bold: all of ours, by their means, not the best of them."""
    found = [(acc, f"| {who} | {acc:.3f} | {nmi:.3f} | {ari:.3f} | |") for who, acc, nmi, ari in PEERS[name]]
    for run, ours in by_run(rows).items():
        readout = score_of(ours[0])[1]
        key, said = ("codes", []) if readout == "codes" else ("kmeans_v_xi", [readout])
        scores = [mean(float(row[f"{key}_{metric}"]) for row in ours) for metric in ("acc", "nmi", "ari")]
        said += [f"mean of {len(ours)} seeds"] if len(ours) > 1 else []
        what = f"**ours: {run}**" + (f" ({', '.join(said)})" if said else "")
        bold = " | ".join(f"**{score:.3f}**" for score in scores)
        hardware = ours[0]["hardware"].split(",")[0]
        found.append((scores[0], f"| {what} | {bold} | {minutes_of(ours):.1f} on one {hardware} |"))
    lines = ["| | ACC | NMI | ARI | minutes |", "|---|---|---|---|---|"]
    return lines + [line for _, line in sorted(found, key=lambda item: -item[0])]


def minutes_of(rows: Rows) -> float:
    return mean(float(row["minutes"]) for row in rows)


def time_to_paper(rows: Rows) -> str:
    """How long the run that is the first to get there takes to the paper's ACC, by its seeds."""
    level = next(acc for who, acc, _, _ in PEERS["cifar10"] if who == "ConCURL, the paper's")
    found = {}
    for run, ours in by_run(rows).items():
        past = [[at for at, acc in _looks(row["name"]) if acc >= level] for row in ours]
        if len(ours) > 1 and all(past):
            found[run] = [times[0] for times in past]
    run, minutes = min(found.items(), key=lambda item: mean(item[1]))
    told = f"{run} in {', '.join(f'{m:.2f}' for m in minutes)} (mean of {len(minutes)} seeds: {mean(minutes):.2f})"
    return notes.TIME_TO_PAPER.format(level=level, found=told)


def _looks(name: str) -> list[tuple[float, float]]:
    """When the labels were looked at during the run (minutes), and its ACC then (0: not yet)."""
    logged = metrics(name)
    return [(at, seen.get("acc") or 0.0) for at, seen in zip(clock(logged), logged, strict=True)]


def four_losses(name: str, rows: Rows) -> list[str]:
    """What each loss reaches, by seeds."""
    lines = ["| | ACC | minutes |", "|---|---|---|"]
    for run, what in notes.FOUR_LOSSES[name].items():
        ours = by_run(rows)[run]
        lines.append(f"| {what} | {_each(ours)} | {minutes_of(ours):.1f} |")
        if not ours[0]["codes_acc"] and all(row["balanced_v_xi_acc"] for row in ours):
            lines.append(f"| the same, by k-means with clusters of equal size | {_each(ours, 'balanced_v_xi')} | |")
    return lines


def _each(rows: Rows, readout: str | None = None) -> str:
    """The ACC of each seed, of what the run is scored by unless a readout is named, and what they come to together."""
    scores = [float(row[f"{readout}_acc"]) if readout else score_of(row)[0] for row in rows]
    each = ", ".join(f"{score:.3f}" for score in scores)
    return f"{each} (mean {mean(scores):.3f}, deviation {stdev(scores):.3f})" if len(scores) > 1 else each


def ablations(name: str, rows: Rows) -> list[str]:
    """The paper's ablations, and ours by seeds."""
    lines = ["| | the paper's ACC / NMI / ARI | ours, each seed | diversity at the end |", "|---|---|---|---|"]
    for kind, (what, *theirs) in PAPER_ABLATIONS.items():
        ours = [row for row in rows if re.fullmatch(rf"{name}-{kind}(-seed\d+)?", row["name"])]
        scores = ", ".join(_triple(row, "codes" if row["codes_acc"] else "kmeans_v_xi") for row in ours)
        agreement = ", ".join(_shown(row["diversity_mean"]) for row in ours)
        lines.append(f"| {what} | {' / '.join(f'{score:.3f}' for score in theirs)} | {scores} | {agreement} |")
    return lines


def runs(rows: Rows) -> list[str]:
    lines = [
        "| run | codes ACC / NMI / ARI | p | soft vote | k-means on v_xi | equal-sized | diversity | epochs | minutes "
        "| hardware | seed |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        scores = [_triple(row, READOUTS[0])]
        scores += [_shown(row[f"{r}_acc"]) for r in READOUTS[1:]]
        hardware = row["hardware"].split(",")[0]
        facts = [_shown(row["diversity_mean"]), row["epochs"], row["minutes"], hardware, row["seed"]]
        lines.append("| " + " | ".join([row["name"], *scores, *facts]) + " |")
    return lines


def _triple(row: dict[str, str], readout: str) -> str:
    return " / ".join(_shown(row[f"{readout}_{metric}"]) for metric in ("acc", "nmi", "ari"))


def _shown(value: str) -> str:
    return f"{float(value):.3f}" if value else "-"


def page() -> str:
    """The whole of docs/results.md."""
    lines = [notes.HEAD]
    for name in notes.TITLES:
        rows = rows_of(name)
        lines += section(name, rows) if rows else []
    if TABLE.exists():
        lines += [notes.UNEQUAL, *summary(), ""]
    lines += [notes.UNSEEN, notes.DIVERSITY, notes.RANKING, *ranked(), notes.RANKED]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    (ROOT / "docs" / "results.md").write_text(page())
