"""concurl predict"""

from __future__ import annotations

from pathlib import Path

from concurl.commands.talk import reader_progress, speak
from concurl.errors import UserError
from concurl.options import Parser


def main(argv: list[str]) -> int:
    """Label images, new ones or old, with the model of a run."""
    parser = Parser(prog="concurl predict", description=main.__doc__)
    parser.add_argument("run", type=Path, help="folder of a run, or a model folder")
    parser.add_argument("source", help="as in concurl fit")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="csv to write (needed)")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="where a benchmark's files are")
    parser.add_argument("--limit", type=int, metavar="N", help="only N of the images")
    parser.add_argument("--device", default="auto", metavar="TEXT", help="auto, cpu, cuda or cuda:N (default: auto)")
    parser.add_argument("--quiet", action="store_true", help="say nothing but warnings")
    given = parser.parse(argv)
    speak(given.quiet)
    if given.output is None:
        raise UserError("no output file; add -o FILE.csv")
    from concurl import run
    from concurl.clustering.assign import assign
    from concurl.data.opened import open_source

    trained = run.model_of(given.run, given.device)
    opened = open_source(
        given.source,
        data_dir=given.data_dir,
        image_size=trained.image_size,
        limit=given.limit,
        progress=reader_progress(),
    )
    assignment = assign(trained, opened.images.images)
    run.write_text(given.output, run.assignments_csv(opened.images.names, assignment, run.read_names(given.run)))
    print(f"{len(opened.images):,} images labelled, {len(opened.images.skipped):,} left out: {given.output}")
    return 0
