"""Line and area charts as inline SVG: no script needed to read them, and they take the page's colours.

Drawn here rather than by plotly, whose script alone is 4.8 MB: most of a page, and too much for one of 10,000 images
(docs/log.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from concurl.report.element import element

WIDTH, HEIGHT = 360, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 12, 10, 30
_POINTS = 240  # per line: more than a chart of this width can show
_DIGIT = 6.2  # pixels that a sign of the axes' type takes, at most
MANY = 20  # shares, from which on lines between them would hide their colours

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """A named curve; `colour` is a css value, `spread` a deviation drawn as a band."""

    name: str
    y: Floats
    colour: str = "var(--accent)"
    spread: Floats | None = None

    def since(self, begin: int) -> Line:
        return replace(self, y=self.y[begin:], spread=None if self.spread is None else self.spread[begin:])


@dataclass(frozen=True)
class Chart:
    """A drawn chart with its caption, and the numbers that the page's script shows under the pointer."""

    key: str
    title: str
    note: str
    svg: Markup
    data: dict[str, object]


def line_chart(
    key: str,
    title: str,
    note: str,
    x: Floats,
    lines: Sequence[Line],
    *,
    level: tuple[str, float] | None = None,
    limits: tuple[float, float] | None = None,
) -> Chart | None:
    """Curves over epochs with an optional dashed level; None where nothing was logged."""
    kept = [line for line in lines if np.isfinite(line.y).any()]
    if not kept:
        return None
    low, high = limits or _extent(kept, level)
    # what begins late begins at the left: the cluster losses have their say in the last 15% of a run
    begin = min(int(np.isfinite(line.y).argmax()) for line in kept)
    x, kept = x[begin:], [line.since(begin) for line in kept]
    frame = _Frame(float(x[0]), float(x[-1]), low, high)
    parts = [frame.axes()]
    if level and low <= level[1] <= high:
        parts.append(frame.level(*level))
    pick = _thin(len(x))
    parts += [frame.curve(x[pick], line, pick) for line in kept]
    svg = _svg(title, _in_words(x, kept, level), parts)
    columns = [(line.name, line.colour, line.y[pick]) for line in kept]
    return Chart(key, title, note, svg, _data(frame, x[pick], columns))


def share_chart(
    key: str, title: str, note: str, x: Floats, shares: Floats, names: Sequence[str], colours: Sequence[str]
) -> Chart:
    """How a whole divides over time: shares (T, K), stacked from the bottom up."""
    pick = _thin(len(x))
    frame = _Frame(float(x[0]), float(x[-1]), 0.0, 1.0)
    kind = "share thin" if len(names) > MANY else "share"
    edges = np.concatenate([np.zeros((len(pick), 1)), np.cumsum(shares[pick], axis=1)], axis=1)
    parts = []
    for j, colour in enumerate(colours):
        above = [frame.point(a, b) for a, b in zip(x[pick], edges[:, j + 1], strict=True)]
        below = [frame.point(a, b) for a, b in zip(x[pick], edges[:, j], strict=True)][::-1]
        parts.append(element("polygon", class_=kind, points=" ".join(above + below), style=f"fill:{colour}"))
    first, last = shares[0], shares[-1]
    words = (
        f"From epoch {x[0]:g} to {x[-1]:g} the largest cluster goes from {first.max():.0%} to "
        f"{last.max():.0%} and the smallest from {first.min():.0%} to {last.min():.0%} of the images."
    )
    svg = _svg(title, words, [frame.axes(percent=True), *parts])
    columns = [(name, colour, shares[pick, j]) for j, (name, colour) in enumerate(zip(names, colours, strict=True))]
    return Chart(key, title, note, svg, _data(frame, x[pick], columns, stacked=True))


@dataclass(frozen=True)
class _Frame:
    """Data coordinates to pixels."""

    x0: float
    x1: float
    y0: float
    y1: float

    def right(self, x: float) -> float:
        span = self.x1 - self.x0
        share = (x - self.x0) / span if span else 1.0  # a lone epoch stands over its number, which is at the right
        return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 1)

    def down(self, y: float) -> float:
        return round(HEIGHT - _BOTTOM - (y - self.y0) / (self.y1 - self.y0) * (HEIGHT - _TOP - _BOTTOM), 1)

    def point(self, x: float, y: float) -> str:
        return f"{self.right(x)},{self.down(y)}"

    def axes(self, percent: bool = False) -> Markup:
        parts = []
        for tick in ticks(self.y0, self.y1, 4):
            at = self.down(tick)
            text = f"{tick:.0%}" if percent else f"{tick:,.6g}"
            parts.append(element("line", class_="grid", x1=_LEFT, x2=WIDTH - _RIGHT, y1=at, y2=at))
            parts.append(element("text", text, x=_LEFT - 8, y=round(at + 3.5, 1), text_anchor="end"))
        # first and last are always told: charts that begin late stand beside others that do not
        first, last = f"{self.x0:,.0f}", f"epoch {self.x1:,.0f}"
        down = HEIGHT - _BOTTOM + 18
        left, right = _LEFT + _DIGIT * (len(first) + 2), WIDTH - _RIGHT - _DIGIT * (len(last) + 2)
        parts.append(element("text", first if self.x1 > self.x0 else "", x=_LEFT, y=down))
        for tick in ticks(self.x0, self.x1, 5):
            text = f"{tick:,.0f}"
            at, half = self.right(tick), _DIGIT * len(text) / 2
            if tick == round(tick) and left < at - half and at + half < right:
                parts.append(element("text", text, x=at, y=down, text_anchor="middle"))
        parts.append(element("text", last, class_="axis", x=WIDTH - _RIGHT, y=down, text_anchor="end"))
        return Markup("").join(parts)

    def level(self, name: str, y: float) -> Markup:
        """A dashed line across, with its name at the right: losses fall, so there is room."""
        at = self.down(y)
        line = element("line", class_="level", x1=_LEFT, x2=WIDTH - _RIGHT, y1=at, y2=at)
        return line + element("text", name, x=WIDTH - _RIGHT, y=round(at - 5, 1), text_anchor="end")

    def curve(self, x: Floats, line: Line, pick: NDArray[np.int64]) -> Markup:
        """The line at the epochs x, which are those that `pick` chooses from its own."""
        y = line.y[pick]
        band = Markup("")
        if line.spread is not None:
            spread = line.spread[pick]
            known = np.isfinite(y) & np.isfinite(spread)
            top = [self.point(a, min(b, self.y1)) for a, b in zip(x[known], (y + spread)[known], strict=True)]
            low = [self.point(a, max(b, self.y0)) for a, b in zip(x[known], (y - spread)[known], strict=True)][::-1]
            band = element("polygon", class_="band", points=" ".join(top + low), style=f"fill:{line.colour}")
        # a gap in the log is a gap in the curve
        known = np.isfinite(y)
        runs = np.split(np.arange(len(y)), np.where(np.diff(known.astype(int)) != 0)[0] + 1)
        drawn = []
        for run in runs:
            if known[run[0]]:
                points = [self.point(x[i], y[i]) for i in run]
                alone = {"class_": "alone"} if len(points) == 1 else {}  # drawn twice it is a dot, by its round cap
                points *= 1 + len(alone)
                drawn.append(element("polyline", **alone, points=" ".join(points), style=f"stroke:{line.colour}"))
        return band + Markup("").join(drawn)


def _svg(title: str, words: str, parts: list[Markup]) -> Markup:
    guide = element("line", class_="guide", y1=_TOP, y2=HEIGHT - _BOTTOM)
    return element("svg", *parts, guide, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=f"{title}. {words}")


def _data(
    frame: _Frame, x: Floats, columns: Sequence[tuple[str, str, Floats]], *, stacked: bool = False
) -> dict[str, object]:
    return {
        "stacked": stacked,
        "x": x.tolist(),
        "at": [frame.right(value) for value in x],
        "lines": [
            {"name": name, "colour": colour, "y": [round(v, 5) if math.isfinite(v) else None for v in y.tolist()]}
            for name, colour, y in columns
        ],
    }


def _in_words(x: Floats, lines: Sequence[Line], level: tuple[str, float] | None) -> str:
    """What someone who cannot see the curve should know about it."""
    words = []
    for line in lines:
        known = np.where(np.isfinite(line.y))[0]
        first, last = known[0], known[-1]
        start, end = f"{line.y[first]:.3g} at epoch {x[first]:g}", f"{line.y[last]:.3g} at epoch {x[last]:g}"
        words.append(f"{line.name}: from {start} to {end}.")
    if level:
        words.append(f"Dashed level: {level[0]}.")
    return " ".join(words)


def _extent(lines: Sequence[Line], level: tuple[str, float] | None) -> tuple[float, float]:
    values = np.concatenate([line.y[np.isfinite(line.y)] for line in lines])
    low, high = float(values.min()), float(values.max())
    if level:
        low, high = min(low, level[1]), max(high, level[1])
    pad = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
    # if there is a level, readers compare distances to it, which means something only from 0 on
    return (0.0 if low >= 0 and (level or low < 0.5 * high) else low - pad), high + pad


def _thin(n: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, n - 1, min(n, _POINTS)).round().astype(np.int64))


def ticks(low: float, high: float, about: int) -> list[float]:
    """Some `about` round numbers from low to high."""
    if not high > low:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]
