"""concurl pack"""

from __future__ import annotations

from pathlib import Path

from concurl.amounts import counted
from concurl.commands.options import Parser
from concurl.commands.refusals import check_folder, check_least
from concurl.errors import UserError
from concurl.progress import stages


def main(argv: list[str]) -> int:
    """Pack images into tar shards (WebDataset's layout); fit, predict and audit read them as they read a folder."""
    parser = Parser(prog="concurl pack", description=main.__doc__, example="PHOTOS -o shards")
    parser.add_argument("source", help="folder, glob, .txt or .csv list, or .tar shards")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder of the shards (needed)")
    parser.add_argument("--per-shard", type=int, default=10_000, metavar="N", help="images in a shard (default: 10000)")
    parser.add_shared("--quiet")
    given = parser.parse(argv)
    if given.output is None:
        raise parser.missing("no output folder; add -o DIR")
    check_least("--per-shard", given.per_shard, 1)
    check_folder(given.output, given.source)
    from concurl.data.files.listing import list_source
    from concurl.data.shardwriter import write_shards

    listing = list_source(given.source, exclude=[given.output])
    if not listing:
        raise UserError(f"no files in {given.source} (hidden ones are not looked at)")
    found = write_shards(listing, given.output, per_shard=given.per_shard, progress=stages())
    left_out = ", ".join(f"{n:,} {status}" for status, n in found.items() if status != "packed")
    print(f"{counted(found['packed'], 'image')} packed{f' (left out: {left_out})' if left_out else ''}: {given.output}")
    return 0
