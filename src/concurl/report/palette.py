"""Colours for clusters that can be told apart on white and on near-black, with normal and with colour-blind sight.

The twenty pairs were found by a search that maximised the smallest OKLab distance, in both themes and in Machado's (2009)
simulations of the three kinds of dichromacy. The first ten are vivid and furthest apart. tests/report/test_palette.py
measures the distances.
"""

from __future__ import annotations

_LIGHT = [
    "#2567b5", "#a6c410", "#760a03", "#c06d10", "#c472bd", "#1e13ad", "#b22763", "#02af7f", "#662c7d", "#1a6b17",
    "#caa9c0", "#333c58", "#6329c5", "#959b4f", "#876c84", "#1f95a6", "#85c692", "#4b4e2d", "#8c4795", "#97513c",
]  # fmt: skip
_DARK = [
    "#5798ea", "#d9f95f", "#ab4235", "#f79f51", "#f9a4f2", "#3d53e5", "#ea5e92", "#5ce3b0", "#965bb0", "#4f9c4a",
    "#ffdcf4", "#5e6886", "#9061fd", "#c7ce80", "#b99bb5", "#5ec8d9", "#b8fbc5", "#787b59", "#bf77c8", "#cc8069",
]  # fmt: skip
# What each round of twenty clusters is mixed with, and how much: first nothing, then lighter, then darker.
_ROUNDS = (("#ffffff", 0.0), ("#ffffff", 0.4), ("#000000", 0.4))


def pairs(k: int) -> list[tuple[str, str]]:
    """For each of k clusters, its colour on the light page and on the dark one."""
    return [(_nth(_LIGHT, i), _nth(_DARK, i)) for i in range(k)]


def _nth(colours: list[str], i: int) -> str:
    towards, share = _ROUNDS[i // len(colours) % len(_ROUNDS)]
    mixed = ((1 - share) * a + share * b for a, b in zip(_rgb(colours[i % len(colours)]), _rgb(towards), strict=True))
    return "#" + "".join(f"{round(channel):02x}" for channel in mixed)


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
