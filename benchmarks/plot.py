"""A figure as an SVG file of its own: white by day, dark by night, and readable where only shapes and colours are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from concurl.report import palette
from concurl.report.chart import ticks

WIDTH = 720
GAP = 14  # between two names that would lie on each other
ROW = 18  # of a legend
FIRST = (0, 3, 7, 8, 6, 5)  # of the palette, those that also make good thin lines
PAPER, INK, FAINT = ("#ffffff", "#15171c"), ("#3c3f45", "#c9ccd2"), ("#e6e6e2", "#2f333b")


def lines(n: int) -> list[tuple[str, str]]:
    """Colours for n curves, each for the light and the dark paper."""
    pairs = palette.pairs(max(n, 20))
    return [pairs[i] for i in (*FIRST, *(j for j in range(len(pairs)) if j not in FIRST))][:n]


@dataclass(frozen=True)
class Plot:
    """Numbers to pixels, between axes that have names."""

    x: tuple[float, float]
    y: tuple[float, float]
    names: tuple[str, str]  # of the axes
    height: int = 330
    left: int = 52
    right: int = 18
    top: int = 34
    bottom: int = 46

    def across(self, x: float) -> float:
        return round(self.left + (x - self.x[0]) / (self.x[1] - self.x[0]) * (WIDTH - self.left - self.right), 1)

    def down(self, y: float) -> float:
        share = (y - self.y[0]) / (self.y[1] - self.y[0])
        return round(self.height - self.bottom - share * (self.height - self.top - self.bottom), 1)

    def axes(self) -> Markup:
        base, end = self.height - self.bottom, WIDTH - self.right
        parts = [Markup('<text class="name" x="{}" y="{}">{}</text>').format(self.left, self.top - 14, self.names[1])]
        for tick in ticks(*self.y, 5):
            at = self.down(tick)
            parts.append(Markup('<path class="grid" d="M{} {}H{}"/>').format(self.left, at, end))
            parts.append(text(self.left - 8, at + 4, f"{tick:g}", "end"))
        for tick in ticks(*self.x, 7):
            at = self.across(tick)
            parts.append(Markup('<path class="axis" d="M{} {}v5"/>').format(at, base))
            parts.append(text(at, base + 19, f"{tick:,g}", "middle"))
        parts.append(Markup('<path class="axis" d="M{} {}H{}"/>').format(self.left, base, end))
        middle = round((self.left + end) / 2)
        parts.append(
            Markup('<text class="name" x="{}" y="{}" text-anchor="middle">{}</text>').format(
                middle, base + 38, self.names[0]
            )
        )
        return Markup("").join(parts)

    def curve(
        self, colour: int, x: Sequence[float], y: Sequence[float], spread: Sequence[float] | None = None
    ) -> Markup:
        """Straight lines from look to look, and a band of one deviation to both sides."""
        band = Markup("")
        if spread is not None:
            above = [self._point(a, min(b + s, self.y[1])) for a, b, s in zip(x, y, spread, strict=True)]
            below = [self._point(a, max(b - s, self.y[0])) for a, b, s in zip(x, y, spread, strict=True)]
            band = Markup('<polygon class="band c{}" points="{}"/>').format(colour, " ".join(above + below[::-1]))
        points = " ".join(self._point(a, b) for a, b in zip(x, y, strict=True))
        return band + Markup('<polyline class="line c{}" points="{}"/>').format(colour, points)

    def dot(self, colour: int, x: float, y: float, *, hollow: bool = False) -> Markup:
        kind = "ring" if hollow else "dot"
        return Markup('<circle class="{} c{}" cx="{}" cy="{}" r="4.5"/>').format(
            kind, colour, self.across(x), self.down(y)
        )

    def levels(self, known: dict[str, float], strong: str = "") -> Markup:
        """Dashed lines with their names at the right, moved down where two would lie on each other."""
        end = WIDTH - self.right
        parts, last = [], -GAP * 1.0
        for name, value in sorted(known.items(), key=lambda item: -item[1]):
            kind, at = (" strong" if name == strong else ""), self.down(value)
            last = max(at, last + GAP)
            parts.append(
                Markup('<path class="level{}" d="M{} {}H{}"/><path class="lead" d="M{} {}L{} {}"/>').format(
                    kind, self.left, at, end, end, at, end + 8, round(last, 1)
                )
            )
            parts.append(
                Markup('<text class="{}" x="{}" y="{}">{:.3f} {}</text>').format(
                    kind.strip(), end + 11, round(last + 4, 1), value, name
                )
            )
        return Markup("").join(parts)

    def _point(self, x: float, y: float) -> str:
        return f"{self.across(x)},{self.down(y)}"


def text(x: float, y: float, words: str, anchor: str = "start") -> Markup:
    return Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>').format(round(x, 1), round(y, 1), anchor, words)


def legend(entries: Sequence[str], left: int, top: int, columns: int = 1) -> tuple[Markup, int]:
    """Colour i and entry i, row by row, and where the last row ends."""
    step = (WIDTH - left) // columns
    parts = []
    for i, entry in enumerate(entries):
        x, y = left + i % columns * step, top + i // columns * ROW
        parts.append(Markup('<rect class="key c{}" x="{}" y="{}" width="11" height="11" rx="2"/>').format(i, x, y))
        parts.append(text(x + 17, y + 10, entry))
    return Markup("").join(parts), top + -(-len(entries) // columns) * ROW


def document(height: int, words: str, colours: Sequence[tuple[str, str]], parts: Sequence[Markup]) -> str:
    """The file; `words` are for those who do not see it, class c0, c1, ... are `colours`."""
    return str(
        Markup(
            '<svg xmlns="http://www.w3.org/2000/svg" width="{}" height="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">'
            '<style>{}</style><rect class="paper" width="{}" height="{}"/>{}</svg>\n'
        ).format(WIDTH, height, WIDTH, height, words, Markup(_style(colours)), WIDTH, height, Markup("\n").join(parts))
    )


def _style(colours: Sequence[tuple[str, str]]) -> str:
    shapes = (
        "text{font:12px Helvetica,Arial,sans-serif;stroke:none}.name{font-weight:bold}.grid,.axis,.level,.lead{fill:none}"
        ".line{fill:none;stroke-width:2;stroke-linejoin:round}.band{stroke:none;opacity:.18}.key{stroke:none}"
        ".dot,.ring{stroke-width:2}.points{fill:none;stroke-width:3.6;stroke-linecap:round;opacity:.8}"
        ".level{stroke-dasharray:2 4}path.strong{stroke-width:1.8;stroke-dasharray:6 4}text.strong{font-weight:bold}"
    )
    dark = f"@media (prefers-color-scheme:dark){{{_coloured(colours, 1)}}}"
    return f"{_coloured(colours, 0)}{dark}{shapes}"


def _coloured(colours: Sequence[tuple[str, str]], night: int) -> str:
    # plain rules and no variables, which programs that turn an SVG into a page of paper often do not know
    paper, ink, faint = PAPER[night], INK[night], FAINT[night]
    rules = "".join(f".c{i}{{fill:{pair[night]};stroke:{pair[night]}}}" for i, pair in enumerate(colours))
    rules += f".paper{{fill:{paper}}}text{{fill:{ink}}}.grid{{stroke:{faint}}}.axis,.level,.lead{{stroke:{ink}}}"
    return rules + f".dot{{stroke:{paper}}}.ring{{fill:{paper}}}"
