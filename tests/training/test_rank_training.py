"""Training on several ranks: the same mathematics as one process, which is the reference; float64 is the ruler."""

from __future__ import annotations

import logging
import os

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters

from concurl.config import Config
from concurl.errors import RunError
from concurl.runs import run
from concurl.training.batchnorm import AllReduceBatchNorm
from concurl.training.checkpoint import checkpoints
from concurl.training.distributed import World
from concurl.training.trainer import Trainer
from ranks import RANKS, in_ranks, pictures, train, trained


@pytest.fixture(scope="module")
def reference(config, tmp_path_factory):
    return trained(1, tmp_path_factory.mktemp("one"), config)[0]


def assert_same(found, want, atol):
    for name, value in want.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=atol, err_msg=name)


@pytest.mark.parametrize("size", RANKS)
def test_fifty_steps_are_those_of_one_process(size, config, reference, tmp_path):
    found = trained(size, tmp_path, config)
    assert len(reference["losses"]) == 50
    assert (reference["losses"][-1] > 0).all()  # all three losses act
    for rank in found:
        assert_same(rank, reference, 1e-9)
    for name, value in found[0].items():
        assert np.array_equal(value, found[-1][name]), name  # among the ranks to the last bit


@pytest.mark.parametrize("size", RANKS)
@pytest.mark.parametrize("norm", ["joint", "apart"])
def test_parts_of_a_batch_are_the_same_on_any_number_of_ranks(size, norm, config, tmp_path):
    """Batch norm sees a part, so each part must be made of the same images; the queue takes them in one order."""
    config = config.replace(epochs=2, cluster_start=0.2, micro_batch=20, batch_size=40, queue_size=50, min_sureness=0.6)
    config = config.replace(batch_norm=norm)
    (want,), found = (trained(n, tmp_path / str(n), config) for n in (1, size))
    assert len(want["losses"]) == 4
    assert_same(found[0], want, 1e-9)


@pytest.mark.parametrize(("sizes"), [(2, 1), pytest.param((4, 2, 1), marks=pytest.mark.slow)])
def test_a_run_goes_on_with_another_number_of_ranks(sizes, config, reference, tmp_path):
    """Stopped within an epoch, after clustering has begun, and resumed by fewer processes."""
    first, *others = sizes
    run = tmp_path / "run"
    run.mkdir()
    losses = [trained(first, tmp_path / "first", config, run, until=23)[0]["losses"]]
    for size, until in zip(others, [*range(31, 31 + len(others) - 1), None], strict=True):
        found = trained(size, tmp_path / str(size), config, run, resume=True, until=until)[0]
        losses.append(found["losses"])
    np.testing.assert_allclose(np.concatenate(losses), reference["losses"], rtol=0, atol=1e-9)
    del found["losses"]
    assert_same(found, {name: reference[name] for name in found}, 1e-9)


def disturbed(world: World, config: Config, folder) -> str:
    trainer = Trainer(config, pictures(), folder=folder, world=world)
    if world.rank == 1:
        trainer.A[0] += 1e-6
    try:
        trainer.fit()
    except RunError as error:
        return str(error)
    return ""


def test_ranks_that_differ_are_found_at_the_checkpoint(config, tmp_path):
    found = in_ranks(2, disturbed, tmp_path, config.replace(epochs=1, cluster_start=0.0), tmp_path)
    assert all("rank 1 differ from those of rank 0" in message for message in found)
    assert not checkpoints(tmp_path / "checkpoints")


# ---- the closing pass -----------------------------------------------------------------------------------------


def embedded_by_rank(world: World, config: Config):
    """(images that this rank embedded, what it holds in the end)."""
    run.BLOCK = 32
    seen = []
    own = run.embeddings
    run.embeddings = lambda draft, images, **how: seen.append(len(images)) or own(draft, images, **how)
    x, kept = run.embed(Trainer(config, pictures(), world=world), pictures(), scored=True)
    return seen, x.numpy(), kept


@pytest.mark.parametrize(("size", "shares"), [(2, [64, 36]), pytest.param(4, [100, 0, 0, 0], marks=pytest.mark.slow)])
def test_each_rank_embeds_its_share_when_training_closes(size, shares, config, tmp_path):
    """Four ranks would need 128 images to have a block of 32 each: with 100 the first does it alone."""
    (want,), found = (in_ranks(n, embedded_by_rank, tmp_path / str(n), config) for n in (1, size))
    assert [rank[0] for rank in found] == [[n] for n in shares]
    _, x, kept = found[0]
    assert x.shape == (100, 12)
    np.testing.assert_array_equal(x, want[1])
    assert kept.keys() == want[2].keys() != set()
    for name in kept:
        np.testing.assert_array_equal(kept[name], want[2][name])


# ---- the network ----------------------------------------------------------------------------------------------


def bytes_of_a_step(world: World, config: Config) -> tuple[int, int]:
    """(bytes that one step hands to the network by torch's own record, the formula of docs/scale.md)."""
    trainer = Trainer(config, pictures(), world=world)
    trainer.model.train()
    images, ids = next(trainer.feed.batches(torch.arange(trainer.local_batch), trainer.local_batch))
    row = trainer.schedule.table(0, 1)[0]
    trainer.take_step(images, ids, torch.tensor(0), row, True)
    with torch.profiler.profile(record_shapes=True) as record:
        trainer.take_step(images, ids, torch.tensor(0), row, True)
    sent = [event for event in record.events() if event.name.startswith("gloo:")]
    seen = 4 * sum(int(np.prod(shape)) for event in sent for shape in event.input_shapes if shape)  # float32, int32
    c, model = config, trainer.model
    learned = [p for p in model.parameters() if p.requires_grad] + [torch.zeros(1)]  # the one that always rests
    norms = [m for m in model.modules() if isinstance(m, AllReduceBatchNorm)]
    online = [m for name, m in model.named_modules() if isinstance(m, AllReduceBatchNorm) and "target" not in name]
    formula = 4 * sum(p.numel() for p in learned)  # gradients
    formula += 4 * len(learned)  # which of them took part
    passes = trainer.parts * (c.n_views if c.batch_norm == "apart" else 1)
    formula += passes * 4 * 2 * sum(m.num_features for m in norms)  # batch norm forward, both branches
    formula += passes * 4 * 2 * sum(m.num_features for m in online)  # and backward
    if trainer.parts > 1:  # the look before, for the codes: as many channels as the target has
        formula += passes * 4 * 2 * sum(m.num_features for m in norms if m not in online)
    formula += 4 * 2 * 2 * c.sinkhorn_iterations * c.n_clusters  # two views, largest and sum
    formula += 4 * 2 * trainer.local_batch * c.embedding_dim * (c.queue_size > 0)  # the queue's rows
    return seen, formula + 4 * 4  # the four losses


@pytest.mark.parametrize(("micro_batch", "norm"), [(None, "joint"), (10, "joint"), (10, "apart")])
def test_what_a_step_sends_is_what_the_docs_say(micro_batch, norm, config, tmp_path):
    config = config.replace(cluster_start=0.0, micro_batch=micro_batch, batch_norm=norm)
    for measured, formula in in_ranks(2, bytes_of_a_step, tmp_path, config):
        assert measured == formula


# ---- the fast form --------------------------------------------------------------------------------------------


compiled = torch.compile


def traced(function, **how):
    """With everything but the generation of kernels: a minute of it for one rank is enough."""
    return compiled(function, backend="aot_eager", **how)


def broken(function, **how):
    def call(*arguments):
        raise RuntimeError("no compiler on this machine")

    return call


def said_by(world: World, config: Config, compilers, kernels) -> tuple[np.ndarray, int, list[str]]:
    """(losses, pieces that were compiled, warnings of our own)."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(kernels)  # none is there yet
    torch.compile = compilers[world.rank]
    said: list[str] = []
    logging.getLogger("concurl").addFilter(lambda record: said.append(record.getMessage()) or True)
    losses = train(world, config, double=False)["losses"]
    return losses, counters["stats"]["unique_graphs"], [line for line in said if "torch.compile" in line]


@pytest.mark.parametrize(
    ("compilers", "graphs"),
    [((compiled, traced), [1, 1]), ((traced, broken), [1, 0])],
    ids=["compiled", "one rank without a compiler"],
)
def test_on_several_ranks_the_views_are_compiled(compilers, graphs, config, tmp_path):
    """They send nothing, so a rank without a compiler keeps step with the others."""
    config = config.replace(epochs=1, cluster_start=0.4, optimizer="sgd", learning_rate=0.01)
    plain, fast = (
        in_ranks(2, said_by, tmp_path / how, config.replace(compile=how), compilers, tmp_path / "kernels")
        for how in ("off", "on")
    )
    assert [found for _, found, _ in plain] == [0, 0]
    assert [found for _, found, _ in fast] == graphs
    assert [len(said) for _, _, said in fast] == [1 - found for found in graphs]
    np.testing.assert_allclose(fast[0][0], plain[0][0], rtol=1e-5, atol=1e-6)


def heard_from(world: World, config: Config, folder) -> str:
    """What a rank writes to its standard error while it trains; torch's own words do not pass through Python."""
    told = folder / f"told-by-{world.rank}"
    with told.open("w") as file:
        os.dup2(file.fileno(), 2)
    train(world, config, double=False)
    return told.read_text()


@pytest.mark.parametrize("cluster_start", [0.0, 0.5])
def test_torch_has_nothing_to_say(cluster_start, config, tmp_path):
    """It warned on each rank as soon as all parameters took part in a step."""
    config = config.replace(epochs=1, cluster_start=cluster_start)
    assert [text for text in in_ranks(2, heard_from, tmp_path, config, tmp_path) if "Warning" in text] == []
