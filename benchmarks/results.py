"""Write docs/results.md from results/*.csv, with the paper's and the peers' figures beside ours.

python benchmarks/results.py
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from statistics import mean

from figures import FIGURES, ROOT, clock, metrics, rows_of, score_of
from peers import PAPER_ABLATIONS, PEERS
from ranking import ranked
from record import READOUTS
from unequal import TABLE, summary

Rows = Sequence[dict[str, str]]

TITLES = {
    "cifar10": "CIFAR-10 (all 60,000 images, train+test, last checkpoint)",
    "cifar10-variants": "CIFAR-10: earlier forms of the recipe",
    "stl10": "STL-10, 4,001 of its training images (not comparable with the paper's 13,000)",
    "imagenette": "Imagenette at 128 px (9,469 training images; a stand-in for ImageNet-10, not comparable with it)",
    "digits": "Digits (scikit-learn's 1,797, 8x8 enlarged to 12x12)",
}
NOTES = {
    "cifar10": """\
All finished runs are listed; those of earlier forms of the recipe have a table of their own below.

**modern-1000** is the recipe as it stands: one command, one seed. Its first 850 epochs are BYOL alone and take 17.6 minutes. At
that point k-means on 50,000 of the images reaches 0.870 / 0.800 / 0.746, and balanced k-means, which gives the prototypes their
start, 0.904 / 0.827 / 0.812. The three runs named after it start from these same features. One of them, **modern-1000-soft**,
leaves out the consensus loss (BYOL + soft clustering) and ends 1.8 points lower; it shared the card with other runs, so its
minutes cannot be compared.

**The four losses in the same minutes.** Each row has 300 epochs, with the same encoder, views and optimiser:

| | ACC | minutes |
|---|---|---|
| soft clustering (soft-300) | 0.566 | 6.7 |
| BYOL + k-means on v_xi (byol-300) | 0.835 | 6.5 |
| BYOL + soft clustering (byol-soft-300; other work shared the card) | 0.823 | 7.4 |
| ConCURL (concurl-300), three seeds | 0.829, 0.834, 0.829: mean 0.831, deviation 0.003 | 7.2 |

After 300 epochs **ConCURL is not ahead of BYOL + k-means**. The reason is the time that each part gets: ConCURL begins to cluster
after 255 epochs, where k-means reaches 0.816, 0.811 and 0.816, and adds 1.3 to 2.3 points to that. BYOL that may use the last 45
epochs as well gains as much: 0.835 instead of 0.816. In 1000 epochs the clustering stage adds 5 points (above), and BYOL
probably has less left to learn by then. (BYOL alone for all 1000 epochs has not been run; ProPos reports 0.894 for theirs.)

**paper-cifar10-large-stem** is the paper's recipe with all its 500 epochs. The paper does not name the network's first layers;
here they are those for large images. ACC stays at 0.42 from epoch 275 on. The layers for small images, the likelier reading, have
not been tried to the end yet.
""",
    "cifar10-variants": """\
The runs named views24 have views of 24 px, as the recipe has now. Their prototypes start from plain k-means, and the learning
rate of their second stage is three times as high, which features trained for 850 epochs do not survive (log.md). Where their
clustering begins, k-means reaches 0.838 / 0.735 / 0.700 after 300 epochs (6.8 minutes) and 0.862 / 0.796 / 0.735 after 850 epochs
(18 minutes). In their commands, the size of the views was still an option of another name.

The other runs have views of 32 px, which are slower and not better. byol-soft-355 and concurl-355 continued from byol-kmeans-300
by a script; the others were run by the commands below.
""",
    "stl10": """\
All rows are made by `python benchmarks/ablations.py stl10 --table stl10 --date YYYY-MM-DD --set epochs=200`. They have a third of
the paper's images and a fifth of its epochs: compare them with each other, not with the paper's. Three trainings shared one card
(MPS), so the minutes are not those of a run alone. Do the paper's trends hold?

- *The consensus loss helps*: yes. It adds 3 points to BYOL + soft clustering here, and added 7 in an earlier try of the same
  eight runs (log.md). Averaged over both tries, ConCURL has 0.434, soft clustering 0.423, BYOL + soft 0.383 and BYOL 0.348. The
  paper does not have soft clustering alone so close.
- *100 projections and 64 dimensions are best*: not seen. All settings end between 0.405 and 0.465, and a single one varies as
  much between seeds and tries (ConCURL: 0.415 to 0.461). Only 256 dimensions, the lowest, has a reason to differ: a projection
  of 256 dimensions to 256 with orthonormal rows is a rotation, so all members see the same, and there is nothing to agree on.
- *More diagonals are worse*: not seen; 0.420 to 0.441.
- *The members come to agree*: yes, from 0.69 to 0.91 with the consensus loss; without it they end between 0.61 and 0.67.
""",
    "imagenette": """\
One run, far too short, kept for completeness. Its labels are the names of the folders.
""",
    "digits": """\
The recipe was chosen by labelled scores on these same digits and seeds (docs/log.md lists every variant that was tried). So the
rows show that the demo works, not what the method would score on an unseen set.
""",
}
HEAD = """\
# Results

What was measured, beside what others report. This page is generated by `python benchmarks/results.py` from results/*.csv; the
metrics of each row are in results/metrics, and `python benchmarks/figures.py` draws the figures. ACC is by Hungarian matching,
NMI by the geometric mean. Training never sees a label, and the last checkpoint is scored. *codes* is the method's own answer.
"""
ACC_MINUTES = """\
![ACC against minutes](figures/acc-minutes.svg)

The lines show ACC on the monitor's 4,096 images, from where clustering begins (before that there are no clusters to score); the
dots are the final ACC on all images. If a run continued from the BYOL stage of another, the minutes of that stage count too. The
horizontal levels are others' final scores, whatever time they took.{silent}
"""
TIME_TO_PAPER = """\
**Time to the paper's {level}**: minutes of training, compilation included, until the monitor (4,096 images, every fifth epoch
once clustering has begun) first saw a higher ACC: {found}. Starting the process and reading the images takes another 15 s or so.
"""
UNEQUAL = """\
## Kinds of unequal frequency

Digits with a long tail (`python benchmarks/unequal.py --folder DIR`): ACC by codes for `--balance` from 1 (equal shares, as in
the paper) to 0 (no balancing); mean and deviation over seeds, which also decide which digits are rare. For each set there is one
training with the `digits` recipe; the other values of `--balance` continue from it (`fit --from`).
"""
TSNE = """\
![t-SNE of the embeddings](figures/tsne-{name}.svg)

Embeddings of a trained model; each point is a picture. The left half is coloured by true class, which training did not know. The
right half is coloured by cluster, each in the colour of the class that it matches. Distances between groups mean little.
"""
SWEEP = """\
![Diversity for several dimensions of the projection](figures/diversity-{name}.svg)

The paper's figure: mean and deviation of the pairwise NMI of the M = 100 members' partitions, for several dimensions of
the random projection (that of z is 256).
"""
DIVERSITY = """\
## Diversity of the ensemble

![Diversity over epochs](figures/diversity.svg)

Mean and deviation of the pairwise NMI of the members' partitions, by epochs since clustering began, from the runs' own metrics.
It rises towards 1 in every run, as in the paper's figure; with the consensus loss it starts and ends higher. (Here BYOL comes
first, so the members start from trained features.)
"""
RANKING = """\
## Choosing a run without labels

How well do the signs that a run sees without labels, at its end, rank runs by ACC (`python benchmarks/ranking.py`)? Spearman's
correlation over all recorded runs with all three losses; each sign is taken so that more should be better. The digits' runs
differ in epochs, views and seeds, those of CIFAR-10 in epochs, views, recipe and start of the clusters, those of STL-10 only in
the ensemble.
"""
RANKED = """
Among runs on one set, with one K and one preset, take the one with the lowest losses. On digits and on photographs this tells
runs that are too short or badly set up from good ones. Across presets it misleads, because weaker views are easier to agree on
(log.md). Among runs that differ by chance only, as those of STL-10 do, it tells nothing.
"""


def section(name: str, rows: Rows) -> list[str]:
    """A data set: ours beside the others', all our runs, what they look like, and how to make them again."""
    lines = [f"## {TITLES[name]}", ""]
    if name in PEERS:
        lines += [*beside(name, rows), ""]
    if name == "stl10":
        lines += [*ablations(name, rows), ""]
    lines += [NOTES[name]] if name in NOTES else []
    lines += [*runs(rows), "", "Commands:", ""]
    lines += [*(f"- {row['name']}: `{row['command']}`" for row in rows), ""]
    if name == "cifar10":
        silent = [row["name"] for row in rows if not any(seen.get("acc") is not None for seen in metrics(row["name"]))]
        said = f" Of {', '.join(silent)} only the last score is known." if silent else ""
        lines += [ACC_MINUTES.format(silent=said), time_to_paper(rows)]
    for kind, words in (("diversity", SWEEP), ("tsne", TSNE)):
        if (FIGURES / f"{kind}-{name}.svg").exists():
            lines.append(words.format(name=name))
    return lines


def beside(name: str, rows: Rows) -> list[str]:
    """Everybody's final scores, best first, ours in bold: all of ours, not the best of them."""
    found = [(acc, f"| {who} | {acc:.3f} | {nmi:.3f} | {ari:.3f} | |") for who, acc, nmi, ari in PEERS[name]]
    for row in rows:
        acc, readout = score_of(row)
        key, said = ("codes", "") if readout == "codes" else ("kmeans_v_xi", f" ({readout})")
        scores = " | ".join(f"**{_shown(row[f'{key}_{metric}'])}**" for metric in ("acc", "nmi", "ari"))
        hardware = row["hardware"].split(",")[0]
        found.append((acc, f"| **ours: {row['name']}**{said} | {scores} | {row['minutes']} on one {hardware} |"))
    lines = ["| | ACC | NMI | ARI | minutes |", "|---|---|---|---|---|"]
    return lines + [line for _, line in sorted(found, key=lambda item: -item[0])]


def time_to_paper(rows: Rows) -> str:
    """How long the runs that come in several seeds take to the paper's ACC."""
    level = next(acc for who, acc, _, _ in PEERS["cifar10"] if who == "ConCURL, the paper's")
    found: dict[str, list[float]] = {}
    for row in rows:
        run, seed, _ = row["name"].partition("-seed")
        logged = metrics(row["name"])
        past = [at for at, seen in zip(clock(logged), logged, strict=True) if (seen.get("acc") or 0) >= level]
        if seed and past:
            found.setdefault(run, []).append(past[0])
    several = {run: minutes for run, minutes in found.items() if len(minutes) > 1}
    told = (
        f"{run} in {', '.join(f'{m:.2f}' for m in minutes)} (mean of {len(minutes)} seeds: {mean(minutes):.2f})"
        for run, minutes in several.items()
    )
    return TIME_TO_PAPER.format(level=level, found="; ".join(told))


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
        "| run | codes ACC / NMI / ARI | p | soft vote | k-means on v_xi | diversity | epochs | minutes | hardware | seed |",
        "|---|---|---|---|---|---|---|---|---|---|",
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


def main() -> None:
    lines = [HEAD]
    for name in TITLES:
        rows = rows_of(name)
        lines += section(name, rows) if rows else []
    if TABLE.exists():
        lines += [UNEQUAL, *summary(), ""]
    lines += [DIVERSITY, RANKING, *ranked(), RANKED]
    (ROOT / "docs" / "results.md").write_text("\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    main()
