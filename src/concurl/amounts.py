"""How many of what, and how long, in words."""

from __future__ import annotations


def counted(n: int, what: str) -> str:
    """ "1 image", "2,000 images"."""
    return f"{n:,} {what}" + ("" if n == 1 else "s")


def duration(minutes: float) -> str:
    """ "40 seconds", "5 minutes", "1.6 hours"."""
    if minutes < 1:
        return counted(round(60 * minutes), "second")
    return counted(round(minutes), "minute") if minutes < 90 else f"{minutes / 60:.1f} hours"
