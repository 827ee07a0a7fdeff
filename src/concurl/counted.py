"""How many of what, in words."""

from __future__ import annotations


def counted(n: int, what: str) -> str:
    """ "1 image", "2,000 images"."""
    return f"{n:,} {what}" + ("" if n == 1 else "s")
