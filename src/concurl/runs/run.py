"""A run: from images to model, assignments and scores. Both doors, command line and estimator, come here."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from concurl.atomic import written_aside
from concurl.clustering.assign import BRANCHES, Assignment, Floats, assign_embeddings, balanced, embeddings, unfinished
from concurl.clustering.evaluate import Scores, evaluate, judge_of, partitions
from concurl.config import Config
from concurl.data.batches import sample
from concurl.data.imageset import ImageSet
from concurl.data.storage.subset import pick
from concurl.errors import RunError
from concurl.network.trained import TrainedModel
from concurl.progress import Progress
from concurl.recipes import CPU_SIZE, SetFacts, settle
from concurl.runs.assignments import BLOCK, write_assignments
from concurl.runs.clusternames import as_json, names_of
from concurl.runs.provenance import Provenance
from concurl.runs.runfolder import BAD_BATCH, MODEL, warn_of_little_room, write_text
from concurl.runs.spreadsheet import order_of
from concurl.runs.summary import write_summary
from concurl.training.device import Arithmetic, choose_device
from concurl.training.distributed import World
from concurl.training.divergence import Diverged, batch_of
from concurl.training.memory import memory_errors_told
from concurl.training.trainer import Trainer
from concurl.views.views import MakeViews

log = logging.getLogger("concurl")

Embedded = tuple[Tensor, dict[str, Floats]]
SCORED = tuple(branch for branch in BRANCHES if branch != "z")  # what scores compare with; z is always there


@dataclass(frozen=True)
class Result:
    """What a finished run knows."""

    trained: TrainedModel
    assignment: Assignment
    scores: Scores | None  # None without labels
    metrics: list[dict[str, Any]]
    warnings: list[str]


def largest_size(config: Config) -> int | None:
    """The largest working size that may be chosen for files; None: any. It also refuses a device that is not there."""
    return None if choose_device(config.device).type == "cuda" else CPU_SIZE


def settled(config: Config, images: ImageSet, train_images: int | None = None) -> tuple[Config, list[str]]:
    """The config with its open choices made from the images, and a line on each, to `tell`."""
    some = images.images[:: max(1, len(images) // 256)]
    facts = SetFacts(
        n_images=min(len(images), train_images or len(images)),
        height=images.images.shape[2],
        width=images.images.shape[3],
        gray=bool((some[:, :1] == some).all()),
        gpu=choose_device(config.device).type == "cuda",
        left_out=len(images.skipped),
    )
    config, chosen = settle(config, facts)
    return config, chosen + ([] if config.depth is not None else _unlike_depths(images.summary.oddities))


def _unlike_depths(oddities: Mapping[str, int]) -> list[str]:
    """A line to tell if 16-bit pictures use different numbers of bits: the networks would see different brightness."""
    bits = {int(name.removesuffix("-bit")): count for name, count in oddities.items() if name.endswith("-bit")}
    if len(bits) < 2:
        return []
    found = " and ".join(f"{bits[depth]:,} use {depth} bits" for depth in sorted(bits))
    return [f"depth = each picture's own: {found}; if one camera took them all, give --depth {max(bits)}"]


def tell(chosen: Sequence[str]) -> None:
    """Log the choices that were made, a line each."""
    for line in chosen:
        log.info("chose %s", line)


def training_part(
    images: ImageSet, config: Config, train_images: int | None
) -> tuple[NDArray[np.uint8], NDArray[np.int64] | None]:
    """The images to train on, and which they are: a seeded sample in ascending order, or None for all."""
    if train_images is None or train_images >= len(images):
        return images.images, None
    ids: NDArray[np.int64] = sample(config.seed, len(images), train_images).numpy()
    return pick(images.images, ids), ids


def fit(images: ImageSet, config: Config, **how: Any) -> Result:
    """`fit_in` this process alone."""
    result = fit_in(World(), images, config, **how)
    assert result is not None
    return result


def fit_in(
    world: World,
    images: ImageSet,
    config: Config,  # settled
    *,
    folder: Path | None = None,
    labels: NDArray[np.int64] | None = None,  # for evaluation only
    train_images: int | None = None,  # train on so many of them, and label them all
    encoder: nn.Module | None = None,
    views: MakeViews | None = None,
    resume: bool = False,
    strict: bool = False,  # a warning of the health watch ends the run
) -> Result | None:
    """Train, label, score; with a folder, leave everything there. The first process alone has a result."""
    begun = time.monotonic()
    with world.lost_rank_told():
        world.check_same("the images", images.names)
    seen, ids = training_part(images, config, train_images)
    names = images.names if ids is None else [images.names[i] for i in ids]
    known = labels if ids is None or labels is None else labels[ids]
    with memory_errors_told(config, choose_device(config.device)):
        trainer = Trainer(
            config, seen, folder=folder, encoder=encoder, views=views, judge=judge_of(known), strict=strict, world=world
        )
    if folder is not None and world.leads:
        warn_of_little_room(folder, trainer.state.named(), len(images), config.embedding_dim)
    with world.lost_rank_told():
        train(trainer, names, resume=resume)
        embedded = embed(trainer, images.images, scored=labels is not None)
        world.leave()
    return conclude(trainer, images, labels, begun, embedded=embedded, trained_on=ids) if world.leads else None


def train(trainer: Trainer, names: Sequence[str], *, resume: bool) -> None:
    """Train from the first step, or from the newest checkpoint; `names` are those of the images trained on."""
    folder = trainer.folder if trainer.world.leads else None
    with memory_errors_told(trainer.config, trainer.arithmetic.device), _bad_batch_kept(trainer.config, names, folder):
        if resume and trainer.resume():
            begins = trainer.config.clusters and trainer.step == trainer.schedule.cluster_step
            fresh = " where clustering begins" if begins else ""
            log.info("resumed at step %d of %d%s", trainer.step, trainer.schedule.total_steps, fresh)
        elif resume:
            log.warning("no sound checkpoint yet: starting again from the first step")
        trainer.fit()


def embed(trainer: Trainer, images: NDArray[np.uint8], *, scored: bool) -> Embedded:
    """Unit embeddings and, if `scored`, the other branches': each process embeds its share, the first gets them all."""
    config, arithmetic, world = trainer.config, trainer.arithmetic, trainer.world
    branches = SCORED if scored else ()
    draft = unfinished(config, trainer.model, trainer.A, arithmetic.autocast)
    stretches = world.stretches(len(images), BLOCK)
    mine = stretches[world.rank]
    with memory_errors_told(config, arithmetic.device):
        progress = Progress("label", len(mine), "images")
        x, kept = embeddings(draft, images[mine.start : mine.stop], branches=branches, advance=progress.advance)
        progress.close()
        rest = {name: world.collect(torch.from_numpy(kept[name]), stretches).numpy() for name in branches if mine}
        return world.collect(x, stretches), rest


def conclude(
    trainer: Trainer,
    images: ImageSet,
    labels: NDArray[np.int64] | None,
    begun: float,
    *,
    embedded: Embedded,
    trained_on: NDArray[np.int64] | None = None,  # None: all of them
) -> Result:
    """What one process does alone after training: balance the clusters, label, score, write."""
    config, arithmetic = trainer.config, trainer.arithmetic
    trainer.model.eval()  # for good: threads that label at the same time must not switch it back and forth
    with memory_errors_told(config, arithmetic.device):
        x, kept = embedded
        draft = unfinished(config, trainer.model, trainer.A, arithmetic.autocast)
        trained = balanced(draft, x if trained_on is None else x[torch.from_numpy(trained_on)])
        assignment = assign_embeddings(trained, x, kept)
    scores = None
    if labels is not None:
        found = partitions(assignment, config, arithmetic.device)
        scores = evaluate(found, labels)
    result = Result(trained, assignment, scores, trainer.metrics.rows, trainer.health.warnings)
    if trainer.folder is not None:
        write_result(trainer.folder, images, result, minutes=(trainer.seconds + time.monotonic() - begun) / 60)
    return result


@contextmanager
def _bad_batch_kept(config: Config, names: Sequence[str], folder: Path | None) -> Iterator[None]:
    """If the run diverges, the names of the images in that step's batch go into nan-batch.txt."""
    kept = None if folder is None else folder / BAD_BATCH
    if kept is not None and kept.exists():
        log.warning(
            "this run diverged before, and would do so again: look at the images that %s names, or start anew with half "
            "the --learning-rate or, if it was bfloat16, with --precision float32",
            kept,
        )
    try:
        yield
    except Diverged as error:
        if kept is not None:
            batch = [names[i] for i in batch_of(config, error.step, len(names))]
            write_text(kept, "".join(f"{name}\n" for name in batch))
            raise RunError(f"{error}; the images of that step are in {kept}") from error
        raise
    if kept is not None:
        kept.unlink(missing_ok=True)


def write_result(folder: Path, images: ImageSet, result: Result, minutes: float) -> None:
    """The model, assignments.csv, embeddings.npy and summary.json."""
    a, K = result.assignment, result.trained.config.n_clusters
    result.trained.save(folder / MODEL)
    write_assignments(folder, images.names, a)
    with written_aside(folder / "embeddings.npy", a.embeddings.nbytes) as file:
        np.save(file, a.embeddings)
    summary = {
        "n_images": len(images),
        "n_clusters": K,
        "sizes": np.bincount(a.labels, minlength=K).tolist(),
        "mean_confidence": float(a.confidence.mean()),
        "mean_agreement": float(a.agreement.mean()),
        "ensemble_confusion": np.round(a.member_votes.astype(float), 4).tolist(),
        "scores": result.scores,
        "warnings": result.warnings,
        "minutes": round(minutes, 2),
        "source": Provenance.read(folder).source if (folder / "run.json").exists() else "",
        "names": as_json(names_of(folder)),
        "order": order_of(images.names),
    }
    write_summary(folder, summary)


def model_of(folder: Path, device: str = "auto", encoder: nn.Module | None = None) -> TrainedModel:
    """The model of a run's folder, or of a model folder itself."""
    inner = folder / MODEL
    trained = TrainedModel.load(inner if inner.is_dir() else folder, device=choose_device(device), encoder=encoder)
    arithmetic = Arithmetic.of(trained.config.replace(device=device))
    return replace(trained, autocast=arithmetic.autocast)
