"""concurl report"""

from __future__ import annotations

from pathlib import Path

from concurl.commands.talk import open_again, run_facts, speak, write_report
from concurl.options import Parser


def main(argv: list[str]) -> int:
    """Make the page of a finished run anew."""
    parser = Parser(prog="concurl report", description=main.__doc__)
    parser.add_argument("run", type=Path, help="folder of a run")
    parser.add_argument("--quiet", action="store_true", help="say nothing but warnings")
    given = parser.parse(argv)
    speak(given.quiet)
    from concurl import run

    config = run.config_of(given.run)
    about = run_facts(given.run)
    print(write_report(given.run, open_again(about, config.image_size)))
    return 0
