"""One self-contained page about a run."""

from concurl.report.facts import RunFacts
from concurl.report.page import write_report

__all__ = ["RunFacts", "write_report"]
