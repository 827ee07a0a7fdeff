"""Cluster unlabelled images: BYOL, soft clustering and a consensus loss, trained end to end (ConCURL)."""

import os
from typing import TYPE_CHECKING, Any

# Threads that wait for each other spin, by default for so long that beside other work they take from each other what they
# need: training on a CPU then is ten times slower and more. Here, as they read it once, when torch is first imported.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

__version__ = "0.1.0"
__all__ = ["ConCURL", "Config", "__version__"]

if TYPE_CHECKING:
    from concurl.config import Config
    from concurl.estimator import ConCURL


def __dir__() -> list[str]:
    """What a notebook offers after `concurl.`, though it is not imported yet."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Import the public names on first use, so that `concurl --help` does not wait for torch."""
    if name == "ConCURL":
        from concurl.estimator import ConCURL

        return ConCURL
    if name == "Config":
        from concurl.config import Config

        return Config
    raise AttributeError(f"module 'concurl' has no attribute {name!r}")
