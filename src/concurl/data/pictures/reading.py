"""How to show what a picture's file leaves open: decided once for a set, and for all that its model labels later."""

from __future__ import annotations

from dataclasses import dataclass

from PIL import ImageColor

from concurl.config import Config

Colour = tuple[int, int, int]
WHITE: Colour = (255, 255, 255)


@dataclass(frozen=True)
class Reading:
    """How files become pixels, where they do not say it themselves."""

    background: Colour = WHITE  # what shows through alpha
    depth: int | None = None  # bits that samples of 16-bit files use; None: as many as each picture needs

    @classmethod
    def of(cls, config: Config) -> Reading:
        """What the options --background and --depth ask for."""
        red, green, blue, *_ = ImageColor.getrgb(config.background)
        return cls((red, green, blue), config.depth)


OWN = Reading()  # each picture by itself
