"""A second stream of a GPU: two passes that do not need each other share the card instead of taking turns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class SideStream:
    """What is launched within `beside` runs beside what is launched after it, until `join`.

    Either pass leaves parts of the card idle, in small layers most of it, and the other fills them. Both compute what they
    compute alone, to the bit.
    """

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @contextmanager
    def beside(self) -> Iterator[None]:
        # The wait also keeps the allocator right: memory that was freed here is not used again before others are done with it.
        self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        with torch.cuda.stream(self.stream):
            yield

    def join(self) -> None:
        """Let the main stream wait for this one. Until then nothing may be freed that is in use here."""
        torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)
