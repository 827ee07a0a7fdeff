"""An element of SVG as text, with all that it says escaped."""

from __future__ import annotations

from markupsafe import Markup


def element(tag: str, *inside: str, **attributes: object) -> Markup:
    """`class_` and `text_anchor` are class and text-anchor; with nothing inside, the element closes itself."""
    named = ((name.strip("_").replace("_", "-"), value) for name, value in attributes.items())
    words = Markup("").join(Markup(' {}="{}"').format(name, value) for name, value in named)
    if not inside:
        return Markup("<{}{}/>").format(tag, words)
    return Markup("<{}{}>{}</{}>").format(tag, words, Markup("").join(inside), tag)
