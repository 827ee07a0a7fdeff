"""concurl report"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from concurl.commands.images import in_order_of, open_again, run_of
from concurl.commands.options import Parser
from concurl.commands.refusals import check_file, check_labels, check_run
from concurl.errors import UserError, call


def main(argv: list[str]) -> int:
    """Make the page of a finished run again, with the names of its names.json and, if given, scores against labels."""
    parser = Parser(prog="concurl report", description=main.__doc__, example="runs/photos")
    parser.add_shared("run", "--labels")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE.html", help="write the page there, and nothing into the run's folder"
    )
    parser.add_shared("--source", "--quiet")
    given = parser.parse(argv)
    check_run(given.run)
    from concurl.report import write_report
    from concurl.runs.assignments import FILE, take_names
    from concurl.runs.spreadsheet import Table

    config, provenance = run_of(given.run, given.moved)
    check_labels(given.labels, provenance.source)
    if given.output is None:
        if not os.access(given.run, os.W_OK):
            elsewhere = call("report", given.run, "-o", f"{given.run.resolve().name}.html")
            raise UserError(f"{given.run} may only be read; write its page elsewhere: {elsewhere}")
        check_file(given.run / "report.html", "report.html")
        take_names(given.run, config.n_clusters)
    else:
        check_file(given.output, "report.html", provenance.source)
        if given.output.suffix.lower() not in (".html", ".htm"):
            raise UserError(
                f"-o {given.output} is to be a page; name a file such as {given.output.with_suffix('.html')}"
            )
        if (given.run / FILE).exists() and Table(given.run / FILE).was_sorted:
            raise UserError(
                f"{given.run / FILE} was sorted; {call('report', given.run)} puts its rows back into their order"
            )
    opened = in_order_of(given.run, config, provenance, open_again(provenance, config))
    if given.labels is not None:
        from concurl.clustering.evaluate import read_labels

        labels, classes = read_labels(given.labels, opened.images.names, opened.images.root)
        opened = replace(opened, labels=labels, classes=classes)
    print(write_report(given.run, opened, output=given.output, other_labels=given.labels is not None))
    return 0
