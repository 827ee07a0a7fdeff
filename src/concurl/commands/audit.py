"""concurl audit"""

from __future__ import annotations

from pathlib import Path

from concurl.commands.talk import reader_progress, speak
from concurl.options import Parser


def main(argv: list[str]) -> int:
    """Look through images before anything is trained: a row per file with status and reason, and a summary."""
    parser = Parser(prog="concurl audit", description=main.__doc__)
    parser.add_argument("source", help="folder, glob, .txt or .csv list, or .tar shards")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="csv with a row per file")
    parser.add_argument("--workers", type=int, metavar="N", help="processes that decode (default: one per core)")
    parser.add_argument("--quiet", action="store_true", help="say nothing but the summary")
    given = parser.parse(argv)
    speak(given.quiet)
    from concurl.data.audit import audit, summarise, write_csv

    rows = audit(given.source, workers=given.workers, progress=reader_progress())
    print(summarise(rows) if given.output is None else write_csv(rows, given.output))
    return 0
