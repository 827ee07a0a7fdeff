"""How many of what, in words."""

from __future__ import annotations


def counted(n: int, what: str) -> str:
    return f"{n:,} {what}" + ("" if n == 1 else "s")
