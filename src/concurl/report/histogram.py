"""How values from 0 to 1 are spread, as bars of inline SVG."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from concurl.amounts import counted
from concurl.report.element import element

_BARS, _WIDTH, _HEIGHT = 20, 320, 96


def histogram(values: NDArray[np.float64], what: str, low: float = 0.0) -> Markup:
    """How many values (one at least is a number) lie in each of some steps from 0 to 1; bars below `low` are marked."""
    known = values[np.isfinite(values)]
    counts, edges = np.histogram(np.clip(known, 0, 1), bins=_BARS, range=(0, 1))
    top, step = int(counts.max()), _WIDTH / _BARS
    bars = [
        element(
            "rect",
            element("title", f"{counted(count, 'image')} from {edges[i]:.2f} to {edges[i + 1]:.2f}"),
            class_="low" if edges[i + 1] <= low else "",
            x=round(i * step + 1, 1),
            y=round(_HEIGHT - _HEIGHT * count / top, 1),
            width=round(step - 2, 1),
            height=round(_HEIGHT * count / top, 1),
            rx=1.5,
        )
        for i, count in enumerate(counts)
    ]
    # the height means something only beside a number
    scale = (
        element("line", class_="grid", x1=0, x2=_WIDTH, y1=0, y2=0),
        element("text", counted(top, "image"), x=0, y=-5),
    )
    base = element("line", class_="base", x1=0, x2=_WIDTH, y1=_HEIGHT + 0.5, y2=_HEIGHT + 0.5)
    ticks = [
        element("text", f"{at:g}", x=at * _WIDTH, y=_HEIGHT + 17, text_anchor=anchor)
        for at, anchor in ((0, "start"), (0.5, "middle"), (1, "end"))
    ]
    words = f"Histogram of {what} from 0 to 1. Half of the images lie above {np.median(known):.2f}."
    box = f"0 0 {_WIDTH} {_HEIGHT + 22}"
    inside = (*scale, *bars, base, *ticks)
    return element("svg", *inside, class_="histogram", viewBox=box, role="img", aria_label=words)
