"""A batch in parts: the outcome of the whole batch; codes, queue and statistics as if nothing had been cut."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from concurl.errors import UserError
from concurl.training.accumulate import AccumulatedStep, count_parts, statistics_kept
from concurl.training.step import Step
from concurl.training.trainer import Trainer

STEPS = 5


@pytest.fixture
def double(monkeypatch):
    """float64 throughout: the losses lift half precision to float32 by .float(); here it must not take float64 down."""
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def pictures() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (STEPS * 24, 3, 8, 8), dtype=np.uint8)


def trainer_for(config, *, norms: bool) -> Trainer:
    trainer = Trainer(config, pictures())
    for branch in (trainer.model.online, trainer.model.target):
        branch.register_forward_pre_hook(lambda _, x: (x[0].double(),))
    for parent in [] if norms else list(trainer.model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, _BatchNorm):
                setattr(parent, name, torch.nn.Identity())
    return trainer


def state(trainer: Trainer) -> dict[str, torch.Tensor]:
    named = {**trainer.model.state_dict(), **trainer.queue.state_dict(), "losses": torch.tensor(0)}
    named["losses"] = torch.tensor([trainer.metrics.rows[-1][name] or 0 for name in ("loss", "l1", "l2", "l3")])
    return {name: value.clone() for name, value in named.items()}


CASES = {
    "online": {},
    "target": {"codes_from": "target"},
    "queue": {"queue_size": 40},
    "later": {"cluster_start": 0.5, "queue_size": 40, "prototype_init": "kmeans"},
    "some heard": {"min_sureness": 0.35, "codes_from": "target"},
    "byol": {"beta": 0.0, "gamma": 0.0},
    "clusters alone": {"alpha": 0.0},
}


@pytest.mark.parametrize("case", CASES)
def test_without_batch_norm_parts_give_what_the_whole_gives(tiny, double, case):
    config = tiny(batch_size=24, preset="small", **CASES[case])
    found = {}
    for micro in (None, 8):
        trainer = trainer_for(config.replace(micro_batch=micro), norms=False)
        assert type(trainer.take_step) is (Step if micro is None else AccumulatedStep)
        trainer.fit()
        assert trainer.step == STEPS
        found[micro] = state(trainer)
    for name, want in found[None].items():
        torch.testing.assert_close(
            found[8][name], want, rtol=0, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize(("micro", "told"), [(None, []), (8, ["3 parts of 8 images"]), (7, ["4 parts of 6 images"])])
def test_the_parts_are_told(tiny, micro, told, caplog):
    """A batch of 23 images could only go one by one; nobody should have to find that out from the time it takes."""
    with caplog.at_level("INFO", logger="concurl"):
        Trainer(tiny(batch_size=24, micro_batch=micro), pictures()[:24]).fit()
    said = [record.message for record in caplog.records if "parts of" in record.message]
    assert said == [f"each batch goes through the networks in {parts}" for parts in told]


@pytest.mark.parametrize("source", ["online", "target"])
def test_every_pass_is_in_the_precision_that_was_asked_for(tiny, source):
    trainer = Trainer(tiny(batch_size=24, micro_batch=8, codes_from=source, precision="bfloat16"), pictures()[:24])
    seen = []
    for branch in (trainer.model.online, trainer.model.target):
        branch.register_forward_hook(lambda _, x, y: seen.append(y.z.dtype))
    trainer.fit()
    assert set(seen) == {torch.bfloat16}


def test_codes_are_those_of_the_whole_batch(tiny, double, monkeypatch):
    """And not of a part: 24 images balance over 4 clusters otherwise than three times 8."""
    seen = []
    codes = Step.codes
    monkeypatch.setattr(Step, "codes", lambda self, z: seen.append(z.shape[1]) or codes(self, z))
    trainer_for(tiny(batch_size=24, micro_batch=8), norms=True).fit()
    assert seen == [24] * STEPS


@pytest.mark.parametrize("source", ["online", "target"])
@pytest.mark.parametrize(("norm", "passes"), [("joint", 1), ("apart", 2)])
def test_batch_norm_follows_the_parts_and_not_the_look_before(tiny, double, source, norm, passes):
    """Three parts are three passes with gradients, of all views or of each; the pass that only looks leaves no trace."""
    config = tiny(batch_size=24, micro_batch=8, codes_from=source, batch_norm=norm)
    trainer = trainer_for(config, norms=True)
    inputs: list[torch.Tensor] = []
    first = next(module for module in trainer.model.online.modules() if isinstance(module, _BatchNorm))
    first.register_forward_hook(lambda _, x, y: inputs.append(x[0].detach()) if y.requires_grad else None)
    mean = first.running_mean.clone()
    trainer.fit()
    assert [len(x) for x in inputs] == [16 // passes] * (3 * passes * STEPS)
    for x in inputs:
        mean = mean.lerp(x.mean((0, 2, 3)), 0.1)
    torch.testing.assert_close(first.running_mean, mean)
    assert int(first.num_batches_tracked) == 3 * passes * STEPS


@pytest.mark.parametrize(("batch", "micro"), [(24, 1), (23, 5)])
def test_views_apart_need_parts_of_two_images(tiny, batch, micro):
    """A single row has no statistics. 23 images are 23 parts: see below."""
    config = tiny(batch_size=batch, micro_batch=micro, batch_norm="apart")
    with pytest.raises(UserError, match=rf"batch_size={batch} and micro_batch={micro}: .* a larger --micro-batch"):
        Trainer(config, pictures())
    Trainer(config.replace(batch_norm="joint"), pictures())


@pytest.mark.parametrize(
    ("source", "passes"), [("online", ["online"] * 6 + ["target"] * 3), ("target", ["online", "target"] * 3)]
)
def test_codes_from_the_target_cost_no_further_pass(tiny, double, source, passes):
    trainer = trainer_for(tiny(batch_size=24, micro_batch=8, codes_from=source), norms=True)
    seen: list[str] = []
    for name in ("online", "target"):
        getattr(trainer.model, name).register_forward_hook(lambda *_, name=name: seen.append(name))
    trainer.model.train()
    images, ids = next(trainer.feed.batches(torch.arange(24), 24))
    trainer.take_step(images, ids, torch.tensor(0), trainer.schedule.table(0, 1)[0].double(), True)
    assert sorted(seen) == sorted(passes)


@pytest.mark.parametrize("source", ["online", "target"])
def test_under_autocast_codes_are_made_in_full_precision(tiny, monkeypatch, source):
    seen = set()
    codes = Step.codes
    monkeypatch.setattr(Step, "codes", lambda self, z: seen.add(z.dtype) or codes(self, z))
    Trainer(tiny(batch_size=24, micro_batch=8, codes_from=source, precision="bfloat16"), pictures()).fit()
    assert seen == {torch.float32}


def test_only_the_last_parts_gradients_go_round_the_ranks(tiny):
    trainer = Trainer(tiny(batch_size=24, micro_batch=8), pictures())
    seen: list[str] = []

    @contextmanager
    def no_sync():
        seen.append("(")
        yield
        seen.append(")")

    trainer.take_step.no_sync = no_sync
    trainer.model.prototypes.register_hook(lambda gradient: seen.append("gradient"))
    images, ids = next(trainer.feed.batches(torch.arange(24), 24))
    trainer.take_step(images, ids, torch.tensor(0), trainer.schedule.table(0, 1)[0], True)
    assert seen == ["(", "gradient", ")"] * 2 + ["gradient"]


def test_a_norm_without_statistics_stays_without():
    network = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.BatchNorm1d(2, track_running_stats=False))
    with statistics_kept(network):
        assert not any(norm.track_running_stats for norm in network)
    assert [norm.track_running_stats for norm in network] == [True, False]


@pytest.mark.parametrize(
    ("batch", "micro", "ranks", "parts"),
    [
        (256, None, 1, 1),
        (256, 300, 2, 1),
        (256, 64, 1, 4),
        (256, 100, 1, 4),
        (24, 7, 2, 4),
        (24, 7, 4, 6),
        (24, 1, 4, 6),
        (23, 5, 1, 23),
    ],
)
def test_parts_are_equal_and_small_enough(batch, micro, ranks, parts):
    assert count_parts(batch, micro, ranks) == parts
    assert batch % (parts * ranks) == 0
