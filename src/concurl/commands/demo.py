"""concurl demo"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from concurl import __version__
from concurl.commands.images import open_again, trained_hash
from concurl.commands.options import Parser
from concurl.commands.refusals import check_folder
from concurl.errors import UserError, call
from concurl.recipes import recipe
from concurl.runs.provenance import Provenance


def main(argv: list[str]) -> int:
    """The whole way on scikit-learn's 1,797 handwritten digits, on a CPU: a few minutes, no download."""
    parser = Parser(prog="concurl demo", description=main.__doc__)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="folder of the run (default: runs/demo, or runs/demo-quick)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="a few epochs, to see that everything works: far too few for good scores"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed (default: 0)")
    given = parser.parse(argv)
    output: Path = given.output or Path("runs/demo-quick" if given.quick else "runs/demo")
    check_folder(output)
    from concurl.clustering.evaluate import pixel_baseline
    from concurl.report import write_report
    from concurl.runs import run, runfolder
    from concurl.runs.summary import change_summary, read_object

    provenance = Provenance("digits", recipe="digits", version=__version__)
    runfolder.check_place(output, resume=False, overwrite=True)  # one demo after another needs no word
    command = str(read_object(output / "environment.json").get("command"))
    if runfolder.holds_run(output) and not command.startswith(call("demo")):
        raise UserError(f"{output} holds a run that concurl demo has not written; choose another folder with -o")
    config = recipe("digits").replace(seed=given.seed)
    if given.quick:
        config = config.replace(epochs=6)
    opened = open_again(provenance, config)
    assert opened.labels is not None
    config, chosen = run.settled(config, opened.images)
    provenance = replace(provenance, chosen=chosen, images=trained_hash(opened.images, config, provenance))
    with runfolder.run_folder(output, resume=False, overwrite=True) as folder:
        runfolder.write_start(folder, config, provenance, opened.images.skipped, command=call("demo", *argv))
        run.tell(chosen)
        result = run.fit(opened.images, config, folder=folder, labels=opened.labels)
        assert result.scores is not None
        result.scores["kmeans_pixels"] = pixel_baseline(opened.images.images, opened.labels, config.n_clusters)
        change_summary(folder, scores=result.scores)
        page = write_report(folder, opened)
    ours, pixels = result.scores["codes"]["acc"], result.scores["kmeans_pixels"]["acc"]
    print(f"{ours:.1%} of the digits are in the cluster matched with their value (ACC {ours:.3f})")
    if given.quick:
        print("so few epochs only show that everything works; without --quick it is over 90%")
    print(f"k-means on the pixels: {pixels:.1%}. Now open {page}")
    return 0
