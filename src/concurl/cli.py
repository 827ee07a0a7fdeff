"""The verbs. Nothing here imports torch before it is needed: `concurl --help` answers at once."""

from __future__ import annotations

import argparse
import difflib
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from concurl import __version__
from concurl.errors import RunError, UserError
from concurl.options import Parser, add_config_options, given_config
from concurl.recipes import RECIPES, recipe

if TYPE_CHECKING:
    from concurl.config import Config
    from concurl.data.opened import Opened

log = logging.getLogger("concurl")


def main(argv: list[str] | None = None) -> int:
    """Run a verb; the exit code is 0, 2 for wrong use, 130/143 for a run stopped by a signal."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version"):
        print(f"concurl {__version__}")
        return 0
    verb, rest = arguments[0], arguments[1:]
    try:
        if verb not in VERBS:
            near = difflib.get_close_matches(verb, VERBS, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UserError(f"unknown verb {verb!r}{hint} (there are: {', '.join(VERBS)})")
        return VERBS[verb](rest)
    except UserError as error:
        print(f"concurl: {error}", file=sys.stderr)
        return 2
    except RunError as error:
        print(f"concurl: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("concurl: stopped", file=sys.stderr)
        return 130


def fit(argv: list[str]) -> int:
    """Train on images and label them: a folder, a list, or a benchmark's name in; a run's folder out."""
    parser = Parser(prog="concurl fit", description=fit.__doc__)
    parser.add_argument("source", nargs="?", help="folder, glob, .txt or .csv list, .tar shards, or a benchmark: digits, "
                        "cifar10, cifar100, cifar100-20, stl10, imagenet10, imagenet-dogs, tiny-imagenet")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder of the run (needed)")
    parser.add_argument("--recipe", default="modern", metavar="NAME", help=f"named set of defaults: {', '.join(RECIPES)} "
                        "(default: modern)")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="where a benchmark's files are "
                        "(default: $CONCURL_DATA, or ./data)")
    parser.add_argument("--limit", type=int, metavar="N", help="only N of the images, a fixed sample of a benchmark")
    parser.add_argument("--resume", action="store_true", help="go on with the run in DIR as it was configured")
    parser.add_argument("--overwrite", action="store_true", help="replace the run in DIR")
    parser.add_argument("--no-report", action="store_true", help="do not make report.html at the end")
    parser.add_argument("--quiet", action="store_true", help="say nothing but warnings and the result")
    add_config_options(parser, recipe(_recipe_named(argv)))
    given = parser.parse(argv)
    _speak(given.quiet)
    if given.output is None:
        raise UserError("no output folder; add -o DIR")
    if given.resume:
        return _resume(given)
    if given.source is None:
        raise UserError("no images; name a folder or a benchmark: concurl fit PHOTOS -k 10 -o runs/photos")
    if given.limit is not None and given.limit < 2:
        raise UserError(f"--limit {given.limit}: at least 2 images are needed")
    config = recipe(given.recipe).replace(**given_config(given))
    about = {
        "source": given.source,
        "data_dir": None if given.data_dir is None else str(given.data_dir.resolve()),
        "limit": given.limit,
        "recipe": given.recipe,
        "version": __version__,
    }
    return _run(given.output, config, about, overwrite=given.overwrite, report=not given.no_report)


def _run(folder: Path, config: Config, about: dict[str, Any], *, overwrite: bool, report: bool) -> int:
    from concurl import run

    if (folder / "config.json").exists() and not overwrite:
        raise UserError(f"{folder} already holds a run; add --resume to go on with it or --overwrite to replace it")
    opened = _open(about, config.image_size)
    config = run.settled(config, opened.images)
    with run.run_folder(folder, resume=False, overwrite=overwrite):
        run.write_start(folder, config, about, opened.images.skipped)
        result = run.fit(opened.images, config, folder=folder, labels=opened.labels)
        _finish(folder, opened, result, report)
    return 0


def _resume(given: argparse.Namespace) -> int:
    from concurl import run

    if given_config(given) or given.source or given.limit or given.data_dir or given.overwrite:
        raise UserError("--resume goes on with the run as it was configured: give it only -o DIR (and --quiet, --no-report)")
    folder: Path = given.output
    with run.run_folder(folder, resume=True, overwrite=False):
        config = run.config_of(folder)
        about = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        opened = _open(about, config.image_size)
        result = run.fit(opened.images, config, folder=folder, labels=opened.labels, resume=True)
        _finish(folder, opened, result, not given.no_report)
    return 0


def _finish(folder: Path, opened: Opened, result: Any, report: bool) -> None:
    from concurl.clustering.evaluate import table

    if report:
        _write_report(folder, opened)
    if result.scores is not None:
        print(table(result.scores))
    sizes = ", ".join(map(str, sorted((result.assignment.labels == k).sum() for k in range(result.trained.config.n_clusters))))
    print(f"{len(opened.images):,} images in {result.trained.config.n_clusters} clusters of {sizes}: {folder}")


def _write_report(folder: Path, opened: Opened) -> Path:
    from concurl.report import write_report

    return write_report(folder, opened.images.images, labels=opened.labels, classes=opened.classes)


def predict(argv: list[str]) -> int:
    """Label images, new ones or old, with the model of a run."""
    parser = Parser(prog="concurl predict", description=predict.__doc__)
    parser.add_argument("run", type=Path, help="folder of a run, or a model folder")
    parser.add_argument("source", help="as in concurl fit")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="csv to write (needed)")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="where a benchmark's files are")
    parser.add_argument("--limit", type=int, metavar="N", help="only N of the images")
    parser.add_argument("--device", default="auto", metavar="TEXT", help="auto, cpu, cuda or cuda:N (default: auto)")
    parser.add_argument("--quiet", action="store_true", help="say nothing but warnings")
    given = parser.parse(argv)
    _speak(given.quiet)
    if given.output is None:
        raise UserError("no output file; add -o FILE.csv")
    from concurl import run
    from concurl.clustering.assign import assign
    from concurl.data.opened import open_source

    trained = run.model_of(given.run, given.device)
    opened = open_source(given.source, data_dir=given.data_dir, image_size=trained.image_size, limit=given.limit,
                         progress=_progress())
    assignment = assign(trained, opened.images.images)
    try:
        run.write_text(given.output, run.assignments_csv(opened.images.names, assignment, run.read_names(given.run)))
    except OSError as error:
        raise UserError(f"{given.output}: cannot be written ({error.strerror})") from None
    print(f"{len(opened.images):,} images labelled, {len(opened.images.skipped):,} left out: {given.output}")
    return 0


def evaluate(argv: list[str]) -> int:
    """Score a run against labels: the benchmark's own, or a csv with the columns path and label."""
    parser = Parser(prog="concurl evaluate", description=evaluate.__doc__)
    parser.add_argument("run", type=Path, help="folder of a run")
    parser.add_argument("--labels", type=Path, metavar="FILE", help="csv with the columns path and label")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="where a benchmark's files are, if they moved")
    parser.add_argument("--device", default="auto", metavar="TEXT", help="auto, cpu, cuda or cuda:N (default: auto)")
    given = parser.parse(argv)
    _speak(quiet=True)
    from concurl import run
    from concurl.clustering.assign import BRANCHES, assign
    from concurl.clustering.evaluate import evaluate as score
    from concurl.clustering.evaluate import partitions, read_labels, table

    config = run.config_of(given.run)
    about = json.loads((given.run / "run.json").read_text(encoding="utf-8"))
    if given.data_dir is not None:
        about["data_dir"] = str(given.data_dir)
    opened = _open(about, config.image_size)
    labels = opened.labels
    if given.labels is not None:
        labels, _ = read_labels(given.labels, opened.images.names)
    if labels is None:
        raise UserError(f"{about['source']} has no labels of its own; give them with --labels FILE.csv")
    trained = run.model_of(given.run, given.device)
    assignment = assign(trained, opened.images.images, branches=tuple(b for b in BRANCHES if b != "z"))
    found = partitions(assignment, config.n_clusters, clustered=config.clusters)
    print(table(score(found, labels)))
    return 0


def report(argv: list[str]) -> int:
    """Make the page of a finished run anew."""
    parser = Parser(prog="concurl report", description=report.__doc__)
    parser.add_argument("run", type=Path, help="folder of a run")
    parser.add_argument("--quiet", action="store_true", help="say nothing but warnings")
    given = parser.parse(argv)
    _speak(given.quiet)
    from concurl import run

    config = run.config_of(given.run)
    about = json.loads((given.run / "run.json").read_text(encoding="utf-8"))
    print(_write_report(given.run, _open(about, config.image_size)))
    return 0


def demo(argv: list[str]) -> int:
    """The whole way on scikit-learn's 1,797 handwritten digits, on a CPU: a few minutes, no download."""
    parser = Parser(prog="concurl demo", description=demo.__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/demo"), metavar="DIR",
                        help="folder of the run (default: runs/demo)")
    parser.add_argument("--quick", action="store_true", help="a few epochs, to see that everything works")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed (default: 0)")
    given = parser.parse(argv)
    _speak(quiet=False)
    from concurl import run
    from concurl.clustering.evaluate import pixel_baseline, table

    config = recipe("digits").replace(seed=given.seed)
    if given.quick:
        config = config.replace(epochs=6)
    about = {"source": "digits", "data_dir": None, "limit": None, "recipe": "digits", "version": __version__}
    opened = _open(about, config.image_size)
    assert opened.labels is not None
    config = run.settled(config, opened.images)
    with run.run_folder(given.output, resume=False, overwrite=True) as folder:
        run.write_start(folder, config, about, opened.images.skipped)
        result = run.fit(opened.images, config, folder=folder, labels=opened.labels)
        page = _write_report(folder, opened)
    assert result.scores is not None
    pixels = pixel_baseline(opened.images.images, opened.labels, config.n_clusters)
    print(table(result.scores, extra=[("kmeans_pixels", pixels)]))
    print(f"codes are the answer of the method, the other rows its baselines. Run: {folder}, page: {page}")
    return 0


VERBS: dict[str, Callable[[list[str]], int]] = {
    "fit": fit,
    "predict": predict,
    "evaluate": evaluate,
    "report": report,
    "demo": demo,
}


def _overview() -> str:
    lines = ["concurl clusters unlabelled images.", "", "usage: concurl VERB ...   (concurl VERB --help tells more)", ""]
    lines += [f"  {name:10} {(verb.__doc__ or '').splitlines()[0]}" for name, verb in VERBS.items()]
    lines += ["", "  concurl fit PHOTOS -k 10 -o runs/photos        a folder of pictures in, clusters and a page out",
              "  concurl predict runs/photos NEW -o new.csv     label new pictures"]
    return "\n".join(lines)


def _recipe_named(argv: list[str]) -> str:
    """--recipe decides the defaults that --help shows, so it is read before the rest."""
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        if word == "--recipe":
            return following
        if word.startswith("--recipe="):
            return word.partition("=")[2]
    return "modern"


def _open(about: dict[str, Any], image_size: int | None) -> Opened:
    from concurl.data.opened import open_source

    data_dir = None if about["data_dir"] is None else Path(about["data_dir"])
    return open_source(about["source"], data_dir=data_dir, image_size=image_size, limit=about["limit"], progress=_progress())


def _progress() -> Callable[[str, int, int], None]:
    """Shows a reader's stages as they go."""
    from concurl.training.runlog import Progress

    bars: dict[str, Progress] = {}

    def show(stage: str, done: int, total: int) -> None:
        bar = bars.setdefault(stage, Progress(stage, total, "images"))
        bar.advance(done - bar.done)
        if done >= total:
            bar.close()

    return show


def _speak(quiet: bool) -> None:
    logging.basicConfig(format="%(message)s", stream=sys.stderr, force=True)
    log.setLevel(logging.WARNING if quiet else logging.INFO)
