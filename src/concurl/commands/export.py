"""concurl export"""

from __future__ import annotations

import logging
from pathlib import Path

from concurl.amounts import counted
from concurl.commands.images import open_again, run_of
from concurl.commands.options import Parser
from concurl.commands.refusals import check_file, check_folder, check_run
from concurl.errors import UserError

log = logging.getLogger("concurl")


def main(argv: list[str]) -> int:
    """Write a folder per cluster, or the model as one file for other tools. The images themselves are not touched."""
    parser = Parser(prog="concurl export", description=main.__doc__, example="runs/photos --folders symlink -o sorted")
    parser.add_shared("run")
    parser.add_argument("-o", "--output", type=Path, metavar="PATH", help="folder (or file) to write (needed)")
    parser.add_argument("--folders", metavar="HOW", help="a folder per cluster, filled by symlink, hardlink or copy")
    parser.add_argument("--names", type=Path, metavar="FILE", help='json with cluster names: {"0": "birds", ...}')
    parser.add_argument(
        "--model", action="store_true", help="the encoder with its preprocessing, as a torch.export file"
    )
    parser.add_shared("--source")
    given = parser.parse(argv)
    if given.output is None:
        raise parser.missing("no output; add -o PATH")
    if given.model == bool(given.folders):
        raise parser.missing("say what to export, --folders symlink|hardlink|copy or --model")
    if given.model and given.names:
        raise UserError("--names goes with --folders; the model gives the clusters' numbers")
    check_run(given.run)
    if given.folders:
        check_folder(given.output, given.moved)
        from concurl.data.files.listing import list_source
        from concurl.export.folders import UNSURE_FOLDER, export_folders
        from concurl.report.verdict import trouble_of

        root = None if given.moved is None else Path(list_source(given.moved).root)
        counts = export_folders(given.run, given.output, how=given.folders, names=given.names, root=root)
        unsure = f", {counts[UNSURE_FOLDER]:,} of them in {UNSURE_FOLDER}" if UNSURE_FOLDER in counts else ""
        print(f"{counted(sum(counts.values()), 'image')} in {counted(len(counts), 'folder')}{unsure}: {given.output}")
        if trouble := trouble_of(given.run):
            log.warning("the run is not healthy: do not rely on these folders yet (%s); see its report.html", trouble)
        return 0
    from concurl.export.program import export_program
    from concurl.runs.run import model_of

    config, provenance = run_of(given.run, given.moved)
    check_file(given.output, "labeller.pt2", provenance.source)
    images = open_again(provenance, config).images.images
    log.info("writing the model, and trying it on some of the images: this takes some seconds")
    checked = export_program(model_of(given.run, "cpu"), images, given.output)
    print(f"{given.output}: gives the same labels as the model on {counted(checked, 'image')}")
    return 0
