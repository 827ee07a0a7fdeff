"""concurl audit"""

from __future__ import annotations

from pathlib import Path

from concurl.commands.options import Parser, add_config_options, given_config
from concurl.commands.refusals import check_file, check_least
from concurl.config import Config
from concurl.errors import UserError
from concurl.progress import stages


def main(argv: list[str]) -> int:
    """Look through images before anything is trained: a row per file with status and reason, and a summary."""
    parser = Parser(prog="concurl audit", description=main.__doc__, example="PHOTOS")
    parser.add_argument("source", help="folder, glob, .txt or .csv list, or .tar shards")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="csv with a row per file")
    parser.add_argument("--workers", type=int, metavar="N", help="processes that decode (default: one per core)")
    parser.add_shared("--quiet")
    add_config_options(parser, Config(), "depth")  # no background: it changes nothing that a row says
    given = parser.parse(argv)
    check_least("--workers", given.workers, 0)
    if given.output is not None:
        check_file(given.output, "files.csv", given.source)
    from concurl.data.checking.audit import audit, summarise, write_csv
    from concurl.data.pictures.reading import Reading

    reading = Reading.of(Config(**given_config(given)))
    rows = audit(given.source, reading=reading, workers=given.workers, progress=stages())
    summary = summarise(rows) if given.output is None else write_csv(rows, given.output)
    if not summary.files:
        raise UserError(f"no files in {given.source} (hidden ones are not looked at)")
    print(summary)
    return 0
