"""How values from 0 to 1 are spread, as bars of inline SVG."""

from __future__ import annotations

import math

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from concurl.counted import counted


def histogram(values: NDArray[np.float64], what: str, low: float = 0.0, bins: int = 20) -> Markup:
    """How many values lie in each of `bins` steps from 0 to 1; bars below `low` are marked."""
    counts, edges = np.histogram(np.clip(values[np.isfinite(values)], 0, 1), bins=bins, range=(0, 1))
    top, width, height = max(1, int(counts.max())), 320, 96
    step = width / bins
    bars = [
        Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}" rx="1.5"><title>{}</title></rect>').format(
            "low" if edges[i + 1] <= low else "",
            round(i * step + 1, 1),
            round(height - height * count / top, 1),
            round(step - 2, 1),
            round(height * count / top, 1),
            f"{counted(count, 'image')} from {edges[i]:.2f} to {edges[i + 1]:.2f}",
        )
        for i, count in enumerate(counts)
    ]
    ticks = [
        Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>').format(at * width, height + 17, anchor, f"{at:g}")
        for at, anchor in ((0, "start"), (0.5, "middle"), (1, "end"))
    ]
    median = float(np.median(values[np.isfinite(values)])) if np.isfinite(values).any() else math.nan
    words = f"Histogram of {what} from 0 to 1. Half of the images lie above {median:.2f}."
    # the height means something only beside a number
    scale = Markup('<line class="grid" x1="0" x2="{}" y1="0" y2="0"/><text x="0" y="-5">{}</text>').format(
        width, counted(top, "image")
    )
    base = Markup('<line class="base" x1="0" x2="{}" y1="{}" y2="{}"/>').format(width, height + 0.5, height + 0.5)
    return Markup('<svg class="histogram" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        width, height + 22, words, Markup("").join([scale, *bars, base, *ticks])
    )
