"""The loop. For every batch of every epoch: a Step; in between: the start of clustering, checkpoints, the log."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from concurl.config import Config
from concurl.counted import counted
from concurl.data.batches import epoch_order
from concurl.data.feed import make_feed
from concurl.data.fingerprint import fingerprint
from concurl.errors import RunError, UserError, call
from concurl.network.model import Model
from concurl.objective.ensemble import draw_transforms
from concurl.objective.queue import EmbeddingQueue
from concurl.progress import Progress
from concurl.training.accumulate import AccumulatedStep, count_parts
from concurl.training.batchnorm import synchronise
from concurl.training.beginning import start_clustering
from concurl.training.checkpoint import load_newest, save_checkpoint
from concurl.training.device import Arithmetic
from concurl.training.distributed import World
from concurl.training.divergence import FiniteWatch
from concurl.training.graph import CapturedStep, CompiledStep, CompiledViews, TakeStep
from concurl.training.health import Health
from concurl.training.interrupt import Interrupted, SignalWatch
from concurl.training.monitor import Judge, Monitor
from concurl.training.optimizer import make_optimizer
from concurl.training.parallel import distribute_step
from concurl.training.pulse import Pulse
from concurl.training.runlog import MetricsFile
from concurl.training.schedule import Schedule
from concurl.training.state import TrainingState, same_run
from concurl.training.step import MakeViews, Step
from concurl.views.views import Views

log = logging.getLogger("concurl")

_SEEDING = threading.Lock()  # torch draws weights from one generator, whichever thread asks
CHECKPOINTS, FEATURES = "checkpoints", "features"  # a run's last states, and the one in which clustering began


class Trainer:
    """Trains a Model on images, as `config` says; all it holds between two steps goes into a checkpoint."""

    def __init__(
        self,
        config: Config,  # settled: no None left
        images: NDArray[np.uint8],  # (N, 3, H, W)
        *,
        folder: Path | None = None,  # where checkpoints and metrics go; None: nowhere
        encoder: nn.Module | None = None,
        views: MakeViews | None = None,
        judge: Judge | None = None,
        strict: bool = False,  # a warning of the health watch ends the run
        world: World | None = None,  # None: this process alone
    ) -> None:
        assert config.batch_size is not None and config.epochs is not None, "settle the config first"
        self.config, self.folder, self.world = config, folder, world or World()
        self.local_batch = self.world.local(config.batch_size)
        self.parts = count_parts(config.batch_size, config.micro_batch, self.world.size)
        self.arithmetic = Arithmetic.of(config)
        device = self.arithmetic.device
        self.feed = make_feed(images, device)
        self.n_images = len(images)
        self.steps_per_epoch = self.n_images // config.batch_size
        self.schedule = Schedule(config, config.epochs * self.steps_per_epoch)

        self.model = _seeded_model(config, encoder)
        self.model.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        if self.world.size > 1:
            synchronise(self.model, self.world)
        self.A = draw_transforms(
            config.transforms, config.n_transforms, config.embedding_dim, config.projection_dim, config.seed
        ).to(device)
        self.queue = EmbeddingQueue(config.queue_size, config.embedding_dim, config.n_views).to(device)
        self.optimizer = make_optimizer(config, self.model)
        self.step = 0  # the next step's number, and so how many have been taken
        self.totals = torch.zeros(4, device=device)  # sums of (loss, l1, l2, l3) over this epoch's steps
        self.state = TrainingState(self.model, self.optimizer, self.A, self.queue, self.totals)
        self.seconds = 0.0  # of training, over all sittings
        self._note = ""  # the last epoch's loss and speed, for the progress line

        self.take_step = self._fast_form(self._plain_step(views or Views(config)))
        self.monitor = Monitor(config, images, self.A, self.arithmetic.autocast, judge)
        self.metrics = MetricsFile(folder if self.world.leads else None)
        self.health = Health(config, strict=strict)
        self.finite = FiniteWatch(device)
        self.pulse = Pulse(self.world)
        self.images_hash = "" if folder is None else fingerprint(images)

    def fit(self) -> Model:
        """Train from wherever the run stands to its end."""
        assert self.config.epochs is not None and self.config.batch_size is not None
        log.info("training on %s: %s", self.arithmetic, self.feed.description)
        if self.parts > 1:  # parts are equal: where the batch does not divide by the size asked for, they are smaller
            size = counted(self.config.batch_size // self.parts, "image")
            log.info("each batch goes through the networks in %d parts of %s", self.parts, size)
        self.model.train()
        self._begun = self._saved = time.monotonic()
        progress = Progress("train", self.schedule.total_steps, "steps", self.step)
        with SignalWatch() as self._signals:
            for epoch in range(self.step // self.steps_per_epoch, self.config.epochs):
                self._epoch(epoch, progress)
        self._stop_if_asked(self._signals.caught)
        self._stop_if_strict()  # a run that was resumed at its end has taken no step that would say it
        progress.close()
        return self.model

    def _epoch(self, epoch: int, progress: Progress) -> None:
        """The steps of an epoch that are still to be taken, and then its row."""
        device, started = self.arithmetic.device, time.monotonic()
        first, end = self.step, (epoch + 1) * self.steps_per_epoch
        numbers = torch.arange(first, end, device=device)
        settings = self.schedule.table(first, end).to(device)
        for index, (images, ids) in enumerate(self.feed.batches(self._order(epoch), self.local_batch)):
            if self.step == self.schedule.cluster_step:
                self._keep_features()
                start_clustering(self.config, self.model, self.queue, self.monitor, self.world)
            clustering = self.step >= self.schedule.cluster_step
            losses = self.take_step(images, ids, numbers[index], settings[index], clustering)
            self.totals += losses
            self.finite.note(losses[0], numbers[index])
            self.step += 1
            progress.advance(1, self._note)
            if self.step < end:  # at the epoch's end its row comes first, as a resumed run begins with the next epoch
                self._save_if_due()
        self._end_epoch(epoch, end - first, started)

    def _order(self, epoch: int) -> Tensor:
        """This rank's images of the epoch's remaining steps, in their order; what fills no batch is left out."""
        size = self.config.batch_size
        assert size is not None
        taken = self.step - epoch * self.steps_per_epoch
        order = epoch_order(self.config.seed, epoch, self.n_images)[taken * size : self.steps_per_epoch * size]
        return self.world.share(order, size // self.parts)  # any number of ranks sees the same parts

    def _end_epoch(self, epoch: int, steps: int, started: float) -> None:
        """An epoch's end: its row, what the monitor and the watch see in it, and a checkpoint if one is due."""
        c = self.config
        assert c.batch_size is not None
        self.finite.check(self.step)
        row = self._row(epoch)
        row["images_per_second"] = round(steps * c.batch_size / (time.monotonic() - started), 1)
        self._note = f"loss {row['loss']:.3f}, {row['images_per_second']:,.0f} images/s"
        self._look(row)
        self.totals.zero_()
        self.metrics.append(row)
        self.health.look(row)
        every = c.checkpoint_epochs
        self._save_if_due(now=epoch + 1 == c.epochs or (every is not None and (epoch + 1) % every == 0))

    def _keep_features(self) -> None:
        """From here a run can go on with other clusters: with another K, say, at the cost of the rest alone."""
        if self.step > 0:  # before the first step nothing has been learned
            self.finite.check(self.step, self.model.parameters())
            self.save(FEATURES)

    def _row(self, epoch: int) -> dict[str, Any]:
        """The epoch's line in metrics.jsonl. To fetch the sums the host waits for the device, once an epoch."""
        steps = self.step - epoch * self.steps_per_epoch
        loss, l1, l2, l3 = (self.totals / steps).tolist()
        acted = min(steps, self.step - self.schedule.cluster_step)  # steps of L2 and L3; the others gave them a 0
        now = self.schedule.at(self.step - 1)
        return {
            "epoch": epoch,
            "step": self.step,
            "minutes": round(self._minutes(), 3),
            "loss": loss,
            "l1": l1 if self.config.alpha > 0 else None,
            "l2": l2 * (steps / acted) if acted > 0 and self.config.beta > 0 else None,
            "l3": l3 * (steps / acted) if acted > 0 and self.config.gamma > 0 else None,
            "learning_rate": now.learning_rate,
            "tau_b": now.tau_b,
        }

    def _look(self, row: dict[str, Any]) -> None:
        """Add what the monitor sees, every few epochs and at the end."""
        last = self.step == self.schedule.total_steps
        if self.world.leads and (last or (row["epoch"] + 1) % self.config.monitor_every == 0):
            row.update(self.monitor.look(self.model, self.step > self.schedule.cluster_step))

    # ---- stopping and going on --------------------------------------------------------------------------

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
                f"{self.folder}: the images have changed since the run began; bring them back, or start anew (--overwrite)"
            )
        self.state.load(named | self.state.clusters() if fresh else named)  # our own: it may have had another K
        self.step, self.seconds = facts["step"], facts["seconds"]
        self.metrics.rewind(self.step // self.steps_per_epoch)
        for row in self.metrics.rows:
            self.health.look(row)
        return True

    def save(self, kind: str = CHECKPOINTS) -> None:
        if self.folder is None:
            return
        named = self.state.named()
        self.world.check_same("the weights", (named[name] for name in sorted(named)))  # a file gives no order
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

    def _stop_if_asked(self, asked: int | None) -> None:
        if asked is not None:
            where = f"; go on with: {call('fit', '--resume', '-o', self.folder)}" if self.folder else ""
            raise Interrupted(asked, f"stopped at step {self.step} of {self.schedule.total_steps}{where}")

    def _minutes(self) -> float:
        return (self.seconds + time.monotonic() - self._begun) / 60

    def _plain_step(self, views: MakeViews) -> Step:
        c, autocast = self.config, self.arithmetic.autocast
        pieces = (c, self.model, self.optimizer, self.A, self.queue, views, autocast, self.world)
        return Step(*pieces) if self.parts == 1 else AccumulatedStep(self.parts, *pieces)

    def _fast_form(self, step: Step) -> TakeStep:
        compiling = self.arithmetic.compiled(self.schedule.total_steps)
        if self.world.size > 1:
            if compiling:
                step.views = CompiledViews(step.views)
            distribute_step(step)
            return step
        if not compiling:
            return step
        compiled = CompiledStep(step)
        return CapturedStep(compiled) if self.arithmetic.device.type == "cuda" else compiled


def _seeded_model(config: Config, encoder: nn.Module | None) -> Model:
    """Weights from the seed, whatever the caller drew before."""
    with _SEEDING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return Model(config, encoder)
