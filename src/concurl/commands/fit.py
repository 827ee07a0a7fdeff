"""concurl fit"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from concurl import __version__
from concurl.atomic import EX_IOERR
from concurl.commands.images import absolute, open_again, run_of, same_images, trained_hash
from concurl.commands.options import Parser, add_config_options, given_config
from concurl.commands.refusals import check_folder, check_least, check_meaning
from concurl.config import FEW, LATE
from concurl.errors import RunError, UserError, call, no_such
from concurl.recipes import RECIPES, recipe
from concurl.runs.clusternames import names_of
from concurl.runs.provenance import Provenance

log = logging.getLogger("concurl")

if TYPE_CHECKING:
    from concurl.config import Config
    from concurl.data.imageset import Opened
    from concurl.runs.run import Result
    from concurl.training.distributed import World


def main(argv: list[str]) -> int:
    """Train on images and label them: a folder, a list, or a benchmark's name in; a run's folder out.

    Most runs need no option but -k. The next to try are --preset, --epochs, --image-size and --balance. Symbols in brackets are
    the paper's. To set an option to None, write none, as in --tau-b-end none.
    """
    named = _recipe_named(argv)
    parser = _parser(named)
    given = parser.parse(argv)
    given.command = call("fit", *argv)
    if given.output is None and given.resume:
        raise UserError(f"which run? Name its folder with -o, as in: {call('fit', '--resume', '-o', 'runs/photos')}")
    if given.output is None:
        raise parser.missing("no output folder; add -o DIR")
    check_least("--workers", given.workers, 0)
    if given.resume:
        _check_resumed(given)
        return _resume(given)
    if given.origin is not None:
        return _branch(given)
    if given.moved is not None:
        raise UserError("--source goes with --resume and --from; the images of a new run are named without it")
    if given.source is None:
        raise parser.missing("no images; name a folder or a benchmark")
    return _begin(given, named)


def _parser(named: str) -> Parser:
    usage = "concurl fit source -o DIR [-k N] [options]"  # with all of them, it would fill the first screen
    parser = Parser(prog="concurl fit", usage=usage, description=main.__doc__, example="PHOTOS -k 10 -o runs/photos")
    parser.add_argument(
        "source",
        nargs="?",
        help="folder, glob, .txt or .csv list, .tar shards, or a benchmark: digits, "
        "cifar10, cifar100, cifar100-20, stl10, stl10-unlabelled, imagenet10, imagenet-dogs, tiny-imagenet",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder of the run (needed)")
    parser.add_argument(
        "--recipe",
        metavar="NAME",
        help=f"named set of defaults: {', '.join(RECIPES)} (default: modern); or the config.json of a run",
    )
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="where a benchmark's files are (default: $CONCURL_DATA, or ./data)"
    )
    parser.add_argument(
        "--limit",
        type=int,
        metavar="N",
        help="use a fixed sample of N files, or of a benchmark's images; the others are not decoded",
    )
    parser.add_argument(
        "--train-images", type=int, metavar="N", help="train on N of the images (seeded), label them all"
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="processes that decode images; changes no result (default: one per core)",
    )
    parser.add_argument("--strict", action="store_true", help="end the run at the first warning of the health watch")
    parser.add_argument("--resume", action="store_true", help="continue the run in DIR, with its own settings")
    parser.add_argument(
        "--from",
        dest="origin",
        type=Path,
        metavar="RUN",
        help="keep the features of RUN and cluster them again, with another -k, --balance, --cluster-lr, --beta, --gamma, ...",
    )
    parser.add_shared("--source")
    parser.add_argument("--overwrite", action="store_true", help="replace the run in DIR")
    parser.add_argument("--no-report", action="store_true", help="do not make report.html at the end")
    parser.add_shared("--quiet")
    add_config_options(parser, recipe(named))
    return parser


def _recipe_named(argv: list[str]) -> str:
    """--recipe is read before the rest, as it decides the defaults that --help shows. Without a value it is refused later."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    early.add_argument("--recipe", nargs="?")
    return early.parse_known_args(argv)[0].recipe or "modern"


def _check_resumed(given: argparse.Namespace) -> None:
    replaced = ["overwrite"] * given.overwrite + ["from"] * (given.origin is not None)
    if fixed := _fixed(given) + _options(replaced):
        raise UserError(
            f"--resume goes on with the run as it was configured: leave out {', '.join(fixed)}; it takes only -o DIR, "
            "--source if the images moved, --quiet, --no-report, --workers and --strict"
        )


def _fixed(given: argparse.Namespace) -> list[str]:
    """The words that say which images a run is of, or how it is trained: a run that goes on has all that already."""
    named = [name for name in ("recipe", "limit", "train_images", "data_dir") if getattr(given, name) is not None]
    return ([] if given.source is None else [given.source]) + _options([*named, *given_config(given)])


def _options(names: Iterable[str]) -> list[str]:
    return sorted("-k" if name == "n_clusters" else f"--{name.replace('_', '-')}" for name in names)


def _begin(given: argparse.Namespace, named: str) -> int:
    """A new run on images of its own, with the recipe of that name."""
    from concurl.data.benchmarks import BENCHMARKS, data_folder

    check_least("--limit", given.limit, 2)
    check_least("--train-images", given.train_images, 2)
    check_meaning(given.source, given.data_dir)
    check_folder(given.output, given.source)
    provenance = Provenance(
        absolute(given.source),
        called_in=os.getcwd(),
        data_dir=str(data_folder(given.data_dir).resolve()) if given.source in BENCHMARKS else None,
        limit=given.limit,
        train_images=given.train_images,
        recipe=named,
        version=__version__,
    )
    return _run(given, recipe(named).replace(**given_config(given)), provenance)


def _branch(given: argparse.Namespace) -> int:
    """A run with the features of another one, and clusters of its own: it goes on from where clustering began there."""
    from concurl.runs.features import features

    if strangers := [word for word in _fixed(given) if word not in _options(LATE)]:
        raise UserError(
            f"--from RUN keeps the run's images and features: leave out {', '.join(strangers)}; only these options may "
            f"change: {', '.join(_options(LATE))}"
        )
    origin: Path = given.origin
    if not origin.exists():
        raise no_such(origin)
    before, provenance = run_of(origin, given.moved)
    config = before.replace(**given_config(given))
    if not config.clusters:
        raise UserError("beta and gamma are both 0: nothing would be clustered")
    if not config.same_features(before):
        how = "without one; leave it out" if before.cluster_lr is None else "with one; give a number"
        raise UserError(f"--cluster-lr: the features of {origin} were trained {how}")
    _, kept = features(origin, before)
    if given.output.resolve() == origin.resolve():
        raise UserError(f"{given.output} is the run to go on from; name another folder with -o")
    check_folder(given.output, provenance.source)
    provenance = replace(provenance, origin=str(origin.resolve()), version=__version__)
    return _run(given, config, provenance, kept["images"])


def _run(given: argparse.Namespace, config: Config, provenance: Provenance, hashed: str = "") -> int:
    """A new run; one with an origin goes on from where clustering began there, with images of that hash."""
    from concurl.runs import run, runfolder
    from concurl.training.distributed import World

    world = World.join()
    folder: Path = given.output
    holds_run = world.leads and runfolder.holds_run(folder)  # others may look while rank 0 already writes
    if any(world.agree(holds_run and _restarted())):
        return _resume(given)
    if world.leads:
        runfolder.check_place(folder, resume=False, overwrite=given.overwrite)
    opened = open_again(provenance, config, given.workers, run.largest_size(config))
    config, chosen = run.settled(config, opened.images, provenance.train_images)
    branches = provenance.origin is not None
    provenance = replace(
        provenance,
        chosen=provenance.chosen if branches else chosen,
        root=opened.images.root,
        images=trained_hash(opened.images, config, provenance),
    )
    # Now, and not when it resumes: --overwrite would have removed another run for nothing.
    if branches and provenance.images != hashed:
        raise UserError(
            f"{provenance.source}: not the images whose features {given.origin} has; bring those back, or train anew "
            "without --from"
        )
    with runfolder.run_folder(folder, resume=False, overwrite=given.overwrite) if world.leads else nullcontext():
        if world.leads:
            runfolder.write_start(folder, config, provenance, opened.images.skipped, command=given.command)
            # Only now, as now there is a train.log. K is said apart: `chosen` is what the images decided.
            if not branches and "n_clusters" not in given_config(given):
                k = f"n_clusters = {config.n_clusters}: the recipe's, whatever the images hold; give yours with -k"
                run.tell([k])
            _tell_files(opened, folder)
            run.tell(chosen)
            if (n := len(opened.images)) < FEW * config.n_clusters:
                few = "%d images for %d clusters are few: below some dozens for each, expect little"
                log.warning(few, n, config.n_clusters)
        _train(world, given, opened, config, provenance, resume=branches)
    return 0


def _resume(given: argparse.Namespace) -> int:
    from concurl.runs import runfolder
    from concurl.training.distributed import World

    world = World.join()
    folder: Path = given.output
    with runfolder.run_folder(folder, resume=True, overwrite=False) if world.leads else nullcontext():
        config, provenance = run_of(folder, given.moved)
        opened = open_again(provenance, config, given.workers)
        # A checkpoint knows its images. A run that was killed before its first one has no other memory of them.
        if not same_images(opened.images, config, provenance):
            raise UserError(
                f"{folder}: the images have changed since the run began; make them as they were, or start anew (--overwrite)"
            )
        _train(world, given, opened, config, provenance, resume=True)
    return 0


def _train(
    world: World, given: argparse.Namespace, opened: Opened, config: Config, provenance: Provenance, *, resume: bool
) -> None:
    """Train with all processes; the first one labels and writes, the others are done then."""
    from concurl.runs import run

    names_of(given.output)  # if nobody can read them, this is said now, and not when the labels are to be written
    go_on = call("fit", "--resume", "-o", given.output)
    try:
        result = run.fit_in(
            world,
            opened.images,
            config,
            folder=given.output,
            labels=opened.labels,
            train_images=provenance.train_images,
            resume=resume,
            strict=given.strict,
        )
    except KeyboardInterrupt:  # before the first step, or after the last: between them the trainer stops itself
        log.warning("what is trained is saved; go on with: %s", go_on)
        raise
    except RunError as error:
        if error.exit_code != EX_IOERR:
            raise
        raise RunError(f"{error}; then go on with: {go_on}", EX_IOERR) from error
    if result is not None:
        _finish(given.output, opened, result, not given.no_report)


def _tell_files(opened: Opened, folder: Path) -> None:
    """The audit's summary, as most people do not ask for one: that files or pages were left out should not come late."""
    if not opened.images.summary.files:  # a benchmark in a format of its own
        return
    for line in opened.images.summary.lines():
        log.info("%s", line)
    if opened.images.reused:
        log.info("decoded before: the pixels come from the packed copy in the cache")
    if opened.images.skipped:
        log.info("what was left out, and why, is in %s", folder / "skipped.csv")


def _judge(folder: Path, opened: Opened, result: Result) -> None:
    """What the page would say first: who wants none should not take the clusters for good, now or in predict."""
    from concurl.report.facts import RunFacts
    from concurl.report.verdict import judge
    from concurl.runs.summary import change_summary

    trouble = judge(RunFacts.of(result, opened.images)).trouble
    change_summary(folder, trouble=trouble)
    if trouble:
        told = (
            "the run is not healthy: do not rely on these clusters yet (%s); what to try is on the page that %s makes"
        )
        log.warning(told, trouble, call("report", folder))


def _restarted() -> bool:
    """Did torchrun start these processes anew, after one of the first ones had died?"""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0


def _finish(folder: Path, opened: Opened, result: Result, report: bool) -> None:
    import numpy as np

    from concurl.clustering.assign import UNSURE
    from concurl.clustering.evaluate import over_labelled, table
    from concurl.report import write_report

    if report:
        try:
            write_report(folder, opened)
        except KeyboardInterrupt:
            log.warning("the run is finished but for its page; for that: %s", call("report", folder))
            raise
    else:
        _judge(folder, opened, result)
    if result.scores is not None:
        print(table(result.scores))
        if opened.labels is not None and (over := over_labelled(opened.labels)):
            print(over)
    config, found = result.trained.config, result.assignment
    sizes = np.bincount(found.labels, minlength=config.n_clusters)
    where = folder / "report.html" if report else folder
    unsure = int((found.agreement < UNSURE).sum())
    print(
        f"{len(opened.images):,} images in {config.n_clusters} clusters of {sizes.min():,} to {sizes.max():,}; "
        f"{unsure:,} unsure: {where}"
    )
