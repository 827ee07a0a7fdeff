"""Draw docs/figures/*.svg from the metrics of recorded runs.   python benchmarks/figures.py"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from concurl.report.chart import HEIGHT, WIDTH, Chart, Line, line_chart

ROOT = Path(__file__).parent.parent
COLOURS = ("#2f54c8", "#b3541e", "#1a7f5a", "#8a2f8f")
LEGEND = 18  # pixels for each line of it
STYLE = """
svg { background: #fff; font: 11px system-ui, sans-serif } text { fill: #555 } .axis { font-style: italic }
.grid { stroke: #e4e4e0 } polyline { fill: none; stroke-width: 2 } .band { opacity: .16 } .guide { visibility: hidden }
.level { stroke: #777; stroke-dasharray: 4 4 }
"""


def metrics(name: str) -> list[dict[str, Any]]:
    with gzip.open(ROOT / "results" / "metrics" / f"{name}.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


def diversity(runs: dict[str, str]) -> Chart | None:
    """Mean pairwise NMI of the ensemble's members and its deviation, from the epoch on in which clustering began."""
    curves = {}
    for name, title in runs.items():
        rows = metrics(name)
        begun = next(row["epoch"] for row in rows if row.get("l2") is not None or row.get("l3") is not None)
        looks = [row for row in rows if row.get("diversity_mean") is not None]
        curves[title] = {row["epoch"] - begun: (row["diversity_mean"], row["diversity_std"]) for row in looks}
    epochs = np.arange(max(max(curve) for curve in curves.values()) + 1.0)
    lines = []
    for (title, curve), colour in zip(curves.items(), COLOURS, strict=False):
        mean, spread = (  # straight lines between two looks, nothing before the first and after the last
            np.interp(epochs, list(curve), values, left=np.nan, right=np.nan)
            for values in zip(*curve.values(), strict=True)
        )
        lines.append(Line(title, mean, colour, spread))
    return line_chart("diversity", "Agreement of the ensemble", "", epochs, lines, limits=(0.75, 1.0))


def save(chart: Chart | None, lines: Sequence[str], path: Path) -> None:
    """The page's chart as a file of its own, with its legend below."""
    assert chart is not None, "nothing was logged"
    legend = Markup("").join(
        Markup('<rect x="44" y="{}" width="10" height="10" fill="{}"/><text x="60" y="{}">{}</text>').format(
            HEIGHT + LEGEND * i, colour, HEIGHT + LEGEND * i + 9, name
        )
        for i, (name, colour) in enumerate(zip(lines, COLOURS, strict=False))
    )
    height = HEIGHT + LEGEND * len(lines) + 6
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * WIDTH}" viewBox="0 0 {WIDTH} {height}"'
    text = str(chart.svg).replace(f'<svg viewBox="0 0 {WIDTH} {HEIGHT}"', head, 1)
    text = text.replace(">", f"><style>{STYLE}</style>", 1).removesuffix("</svg>") + str(legend) + "</svg>\n"
    path.write_text(text)


def main() -> None:
    runs = {
        "concurl-355": "CIFAR-10, ConCURL, 300 epochs of BYOL before",
        "byol-soft-355": "CIFAR-10, BYOL + soft: without the consensus loss",
        "concurl-220": "CIFAR-10, ConCURL, 187 epochs of BYOL before",
        "digits-seed0": "digits, ConCURL",
    }
    save(diversity(runs), list(runs.values()), ROOT / "docs" / "figures" / "diversity.svg")


if __name__ == "__main__":
    main()
