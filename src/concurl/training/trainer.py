"""The training loop: a Step for every batch of every epoch; in between, the start of clustering, checkpoints and the log."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from concurl.amounts import counted
from concurl.config import Config, filled
from concurl.data.batches import epoch_order
from concurl.data.storage.feed import make_feed
from concurl.data.storage.fingerprint import fingerprint
from concurl.errors import RunError, UserError, call
from concurl.network.model import Model, seeded_model
from concurl.objective.ensemble import draw_transforms
from concurl.objective.queue import EmbeddingQueue
from concurl.progress import Progress
from concurl.training.accumulate import AccumulatedStep, count_parts
from concurl.training.batchnorm import synchronise
from concurl.training.checkpoint import load_newest, save_checkpoint
from concurl.training.cluster_start import start_clustering
from concurl.training.device import Arithmetic
from concurl.training.distributed import World
from concurl.training.divergence import FiniteWatch
from concurl.training.graph import fast_form
from concurl.training.health import Health
from concurl.training.heap import freed_memory_kept
from concurl.training.interrupt import Interrupted, SignalWatch
from concurl.training.monitor import Judge, Monitor
from concurl.training.optimizer import make_optimizer
from concurl.training.pulse import Pulse
from concurl.training.runlog import MetricsFile
from concurl.training.schedule import Schedule
from concurl.training.state import TrainingState, same_run
from concurl.training.step import Step
from concurl.views.views import MakeViews, Views

log = logging.getLogger("concurl")

# Two folders of checkpoints: the last states of a run, and the one in which clustering began.
CHECKPOINTS, FEATURES = "checkpoints", "features"


class Trainer:
    """Trains a Model on images as `config` says. All that it holds between two steps goes into a checkpoint."""

    def __init__(
        self,
        config: Config,  # settled: see recipes.py
        images: NDArray[np.uint8],  # (N, 3, H, W)
        *,
        folder: Path | None = None,  # for checkpoints and metrics; None: they are not written
        encoder: nn.Module | None = None,  # None: the one that the config names
        views: MakeViews | None = None,  # None: those of the config's preset
        judge: Judge | None = None,
        strict: bool = False,  # a warning of the health watch ends the run
        world: World | None = None,  # None: this process alone
    ) -> None:
        self.config, self.folder, self.world = config, folder, world or World()
        self.epochs, self.batch_size, self.n_images = filled(config.epochs), filled(config.batch_size), len(images)
        self.local_batch = self.world.local(self.batch_size)
        self.parts = count_parts(self.batch_size, config.micro_batch, self.world.size)
        if config.batch_norm == "apart" and self.parts == self.batch_size:
            raise UserError(
                f"batch_norm=apart with batch_size={self.batch_size} and micro_batch={config.micro_batch}: each image would "
                "be a part of its own, and batch norm needs two of a view; take a larger --micro-batch"
            )
        self.steps_per_epoch = self.n_images // self.batch_size
        self.schedule = Schedule(config, self.epochs * self.steps_per_epoch)
        self.arithmetic = Arithmetic.of(config)
        device, autocast = self.arithmetic.device, self.arithmetic.autocast
        self.feed = make_feed(images, device)

        self.model = seeded_model(config, encoder)
        self.model.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        if self.world.size > 1:
            synchronise(self.model, self.world)
        self.A = draw_transforms(
            config.transforms, config.n_transforms, config.embedding_dim, config.projection_dim, config.seed
        ).to(device)
        self.queue = EmbeddingQueue(config.queue_size, config.embedding_dim, config.n_views).to(device)
        self.optimizer = make_optimizer(config, self.model)
        pieces = (config, self.model, self.optimizer, self.A, self.queue, views or Views(config), autocast, self.world)
        step = Step(*pieces) if self.parts == 1 else AccumulatedStep(self.parts, *pieces)
        self.take_step = fast_form(step, self.arithmetic.worth_compiling(self.schedule.total_steps))

        self.step = 0  # the number of the next step, and so how many were taken
        self.totals = torch.zeros(4, device=device)  # (loss, l1, l2, l3), summed over the steps of this epoch
        self.seconds = 0.0  # that the run had trained when this process resumed it
        self.state = TrainingState(self.model, self.optimizer, self.A, self.queue, self.totals)
        self.images_hash = "" if folder is None else fingerprint(images)

        self.monitor = Monitor(config, images, self.A, autocast, judge)
        self.metrics = MetricsFile(folder if self.world.leads else None)
        self.health = Health(config, strict=strict)
        self.finite = FiniteWatch(device)
        self.pulse = Pulse(self.world)
        self._note = ""  # the last epoch's loss and speed, for the progress line

    def fit(self) -> Model:
        """Train from where the run stands to its end."""
        log.info("training on %s: %s", self.arithmetic, self.feed.description)
        if self.parts > 1:  # equal parts, and so perhaps smaller than the micro_batch that was asked for
            size = counted(self.batch_size // self.parts, "image")
            log.info("each batch goes through the networks in %d parts of %s", self.parts, size)
        self.model.train()
        self._begun = self._saved = time.monotonic()
        progress = Progress("train", self.schedule.total_steps, "steps", self.step)
        with SignalWatch() as self._signals, freed_memory_kept():
            for epoch in range(self.step // self.steps_per_epoch, self.epochs):
                self._train_epoch(epoch, progress)
        self._stop_if_asked(self._signals.caught)
        self._stop_if_strict()  # here too, as a run that is resumed at its end takes no step
        progress.close()
        return self.model

    def _train_epoch(self, epoch: int, progress: Progress) -> None:
        """Take the steps that are left of an epoch, and log its row."""
        device, started = self.arithmetic.device, time.monotonic()
        first, end = self.step, (epoch + 1) * self.steps_per_epoch
        numbers = torch.arange(first, end, device=device)
        settings = self.schedule.table(first, end).to(device)
        # No variable holds the batches: the traceback of an error would keep them alive, and with them the thread that reads.
        for index, (images, ids) in enumerate(self.feed.batches(self._order(epoch), self.local_batch)):
            if self.step == self.schedule.cluster_step:
                self._begin_clustering()
            clustering = self.step >= self.schedule.cluster_step
            losses = self.take_step(images, ids, numbers[index], settings[index], clustering)
            self.totals += losses
            self.finite.note(losses[0], numbers[index])
            self.step += 1
            if self.step < end:  # after the last step the row comes first: a run resumed there begins the next epoch
                progress.advance(1, self._note)
                self._save_if_due()
        self._end_epoch(epoch, end - first, started)
        progress.advance(1, self._note)  # the last step's, with the loss of its own epoch

    def _order(self, epoch: int) -> Tensor:
        """The ids of this rank's images in the remaining steps of the epoch; a last, incomplete batch is left out."""
        taken = self.step - epoch * self.steps_per_epoch
        order = epoch_order(self.config.seed, epoch, self.n_images)
        order = order[taken * self.batch_size : self.steps_per_epoch * self.batch_size]
        return self.world.share(order, self.batch_size // self.parts)  # the same parts on any number of ranks

    def _begin_clustering(self) -> None:
        if self.step > 0:  # kept, so that a run with other clusters (another K, say) need not learn the features again
            self.finite.check(self.step, self.model.parameters())
            self.save(FEATURES)
        start_clustering(self.config, self.model, self.queue, self.monitor, self.world)

    def _end_epoch(self, epoch: int, steps: int, started: float) -> None:
        """Log the epoch's row with what the monitor sees, let the health watch look at it, and save if it is time."""
        self.finite.check(self.step)
        row = self._row(epoch)
        row["images_per_second"] = round(steps * self.batch_size / (time.monotonic() - started), 1)
        self._note = f"loss {row['loss']:.3f}, {row['images_per_second']:,.0f} images/s"
        last = epoch + 1 == self.epochs
        if self.world.leads and (last or (epoch + 1) % self.config.monitor_every == 0):
            row |= self.monitor.look(self.model, self.step > self.schedule.cluster_step)
        self.totals.zero_()
        self.metrics.append(row)
        self.health.look(row)
        every = self.config.checkpoint_epochs
        self._save_if_due(now=last or (every is not None and (epoch + 1) % every == 0))

    def _row(self, epoch: int) -> dict[str, Any]:
        """The epoch's line in metrics.jsonl. Fetching the sums makes the host wait for the device, once per epoch."""
        steps = self.step - epoch * self.steps_per_epoch
        loss, l1, l2, l3 = (self.totals / steps).tolist()
        clustered = min(steps, self.step - self.schedule.cluster_step)  # in the other steps l2 and l3 were 0
        now = self.schedule.at(self.step - 1)
        return {
            "epoch": epoch,
            "step": self.step,
            "minutes": round(self._minutes(), 3),
            "loss": loss,
            "l1": l1 if self.config.alpha > 0 else None,
            "l2": l2 * (steps / clustered) if clustered > 0 and self.config.beta > 0 else None,
            "l3": l3 * (steps / clustered) if clustered > 0 and self.config.gamma > 0 else None,
            "learning_rate": now.learning_rate,
            "tau_b": now.tau_b,
        }

    # ---- saving, stopping and resuming ------------------------------------------------------------------

    def resume(self) -> bool:
        """Go on from the newest sound checkpoint, or from where clustering began; False if there is neither."""
        found = None
        if self.folder is not None:
            found = load_newest(self.folder / CHECKPOINTS) or load_newest(self.folder / FEATURES)
        self.world.check_same("the newest checkpoints", [torch.tensor(-1 if found is None else found[1]["step"])])
        if found is None:
            self.metrics.rewind(0)
            return False
        named, facts = found
        fresh = facts["step"] == self.schedule.cluster_step  # the clusters are still as they were drawn
        if not same_run(self.config, facts["config"], until_clustering=fresh):
            raise UserError(
                f"{self.folder}: its checkpoint belongs to another configuration; use the run's own config.json"
            )
        if facts["images"] != self.images_hash:
            raise UserError(
                f"{self.folder}: the images have changed since the run began; make them as they were, or start anew "
                "(--overwrite)"
            )
        # Fresh clusters are this run's own: the checkpoint may be of a run with another K.
        self.state.load(named | self.state.clusters() if fresh else named)
        self.step, self.seconds = facts["step"], facts["seconds"]
        self.metrics.rewind(self.step // self.steps_per_epoch)
        for row in self.metrics.rows:
            self.health.look(row)
        return True

    def save(self, kind: str = CHECKPOINTS) -> None:
        """Write a checkpoint, if there is a folder for it; all ranks call this together."""
        if self.folder is None:
            return
        named = self.state.named()
        self.world.check_same("the weights", (named[name] for name in sorted(named)))  # in a fixed order
        if not self.world.leads:
            return
        facts = {
            "config": self.config.to_json(),
            "images": self.images_hash,
            "step": self.step,
            "seconds": 60 * self._minutes(),
        }
        save_checkpoint(self.folder / kind, self.step, named, facts)

    def _save_if_due(self, now: bool = False) -> None:
        late = time.monotonic() - self._saved >= 60 * self.config.checkpoint_minutes
        ending = self.health.complaint is not None  # a strict run is saved before it stops
        asked, due = self.pulse.agreed(self.step, self._signals.caught, late or ending)
        if asked is None and not due and not now:
            return
        self.finite.check(self.step, self.model.parameters())  # a diverged state must not replace a good one
        self._saved = time.monotonic()
        self.save()
        self._stop_if_strict()
        self._stop_if_asked(asked)

    def _stop_if_strict(self) -> None:
        if (complaint := self.health.complaint) is not None:
            raise RunError(f"{complaint}. The run is strict and stops at step {self.step}; it goes on without --strict")

    def _stop_if_asked(self, signal: int | None) -> None:
        if signal is not None:
            where = f"; go on with: {call('fit', '--resume', '-o', self.folder)}" if self.folder else ""
            raise Interrupted(signal, f"stopped at step {self.step} of {self.schedule.total_steps}{where}")

    def _minutes(self) -> float:
        return (self.seconds + time.monotonic() - self._begun) / 60
