"""concurl merge"""

from __future__ import annotations

from pathlib import Path

from concurl.amounts import counted
from concurl.commands.options import Parser
from concurl.commands.refusals import check_file
from concurl.errors import UserError


def main(argv: list[str]) -> int:
    """Join the parts that concurl predict --shard wrote into one csv, the same as without --shard."""
    parser = Parser(prog="concurl merge", description=main.__doc__, example="PARTS -o new.csv")
    parser.add_argument("parts", type=Path, help="folder of the parts")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="csv to write (needed)")
    given = parser.parse(argv)
    if (given.parts / "run.json").exists():
        raise UserError(
            f"{given.parts} is a run, and has no parts of predict --shard; to join clusters, give them the same name in "
            f"{given.parts / 'names.json'}"
        )
    if given.output is None:
        raise parser.missing("no output file; add -o FILE.csv")
    check_file(given.output, "new.csv", *given.parts.glob("part-*"))
    from concurl.runs.parts import merge

    labelled, left_out = merge(given.parts, given.output)
    print(f"{counted(labelled, 'image')} labelled, {left_out:,} left out: {given.output}")
    return 0
