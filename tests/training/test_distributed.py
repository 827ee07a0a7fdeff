"""Several processes: the same mathematics as one. One process is the reference, float64 the ruler."""

from __future__ import annotations

import contextlib
import logging
import os

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters

from concurl import run
from concurl.config import Config
from concurl.data.batches import epoch_order
from concurl.errors import RunError, UserError
from concurl.objective.sinkhorn import sinkhorn, streaming_scalings
from concurl.training.batchnorm import AllReduceBatchNorm, synchronise
from concurl.training.checkpoint import checkpoints
from concurl.training.distributed import World
from concurl.training.trainer import Trainer
from ranks import in_ranks

ALONE = World()
RANKS = [2, pytest.param(4, marks=pytest.mark.slow)]


# ---- what ranks share -----------------------------------------------------------------------------------------


def test_alone_nothing_changes():
    x = torch.randn(5, 3)
    assert ALONE.leads
    for same in (ALONE.sum(x), ALONE.mean(x), ALONE.log_reduce(x), ALONE.gather(x), x[ALONE.part]):
        assert torch.equal(same, x)
    assert ALONE.agree(3, 0) == [3, 0]


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_the_shares_of_the_ranks_make_the_batches(size):
    order = epoch_order(0, 0, 50)[:48]
    shares = [World(rank, size).share(order, 12).view(4, -1) for rank in range(size)]
    assert torch.equal(torch.cat(shares, dim=1), order.view(4, 12))


def test_a_batch_that_cannot_be_split_is_refused():
    with pytest.raises(UserError, match=r"batch_size=50 .* 4 processes; use --batch-size 48"):
        World(0, 4).local(50)
    with pytest.raises(UserError, match="use --batch-size 4"):
        World(0, 4).local(1)


@pytest.mark.parametrize(
    ("gpus", "backend", "chosen"), [(1, "gloo", 0), (2, "cpu:gloo,cuda:nccl", 1), (0, "gloo", None)]
)
def test_processes_that_share_a_gpu_talk_through_gloo(gpus, backend, chosen, monkeypatch):
    """NCCL refuses two ranks on one GPU; rank 1 of 2 on a machine with one GPU takes that one."""
    for name, value in {"RANK": 1, "LOCAL_RANK": 1, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))
    taken: dict[str, object] = {"device": None}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: taken.update(device=device))
    dist = torch.distributed
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **others: taken.update(backend=backend))
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    assert World.join() == World(1, 2)
    assert taken == {"device": chosen, "backend": backend}


def test_a_lost_rank_is_told_in_one_line():
    def fail(world, words):
        with world.loss_told():
            raise RuntimeError(words)

    with pytest.raises(RunError, match="rank 1 stops, as another process"):
        fail(World(1, 2), "[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:45711.")
    with pytest.raises(RunError, match="rank 0 stops"):
        fail(World(0, 2), "NCCL error: remote process exited or there was a network error")
    for world, words in ((ALONE, "Connection closed by peer"), (World(1, 2), "mat1 and mat2 shapes")):
        with pytest.raises(RuntimeError, match=words):
            fail(world, words)


# ---- codes ----------------------------------------------------------------------------------------------------

UNEVEN = {1: [23], 2: [16, 7], 4: [8, 8, 7, 0]}  # the last batch of a set: ranks with fewer images, and with none


def scores() -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(23, 6, generator=torch.Generator().manual_seed(1)), dim=1)


def codes_of_rank(world: World) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    mine = torch.split(scores(), UNEVEN[world.size])[world.rank]
    q, u = sinkhorn(mine, 0.05, 3, log_reduce=world.log_reduce)
    whole = streaming_scalings(lambda: [mine], 0.05, log_reduce=world.log_reduce)
    return q.numpy(), u.numpy(), whole.numpy()


@pytest.mark.parametrize("size", RANKS)
def test_codes_do_not_depend_on_the_ranks(size, tmp_path):
    q, u = sinkhorn(scores(), 0.05, 3)
    streamed = streaming_scalings(lambda: [scores()], 0.05)
    found = in_ranks(size, codes_of_rank, tmp_path)
    np.testing.assert_allclose(np.concatenate([part[0] for part in found]), q, atol=1e-6)
    assert np.array_equal(np.concatenate([part[0] for part in found]).argmax(1), q.argmax(1))
    for _, scalings, whole in found:
        np.testing.assert_allclose(scalings, u, atol=2e-5)  # s / epsilon is up to 20: 1e-6 of that
        np.testing.assert_allclose(whole, streamed, atol=2e-5)


# ---- batch norm -----------------------------------------------------------------------------------------------


def norms(world: World) -> dict[str, np.ndarray]:
    """Output, gradients and statistics of three steps through two kinds of batch norm, far from mean 0."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.BatchNorm2d(3), torch.nn.Flatten(), torch.nn.Linear(48, 5), torch.nn.BatchNorm1d(5, momentum=0.3)
    ).double()
    if world.size > 1:
        synchronise(net, world)
        assert not any(type(m) in (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d) for m in net.modules())
    for step in range(3):
        x = torch.randn(8, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(step)) * 3 + 50
        mine = x.chunk(world.size)[world.rank].requires_grad_()
        weights = torch.linspace(-1, 2, 40, dtype=torch.float64).view(8, 5).chunk(world.size)[world.rank]
        out = net(mine)
        net.zero_grad()
        (out.sin() * weights).sum().backward()
    found = {name: value.detach().numpy() for name, value in net.state_dict().items()}
    found |= {f"grad.{name}": world.sum(p.grad).numpy() for name, p in net.named_parameters()}
    assert mine.grad is not None
    found |= {"out": world.gather(out.detach()).numpy(), "grad.x": world.gather(mine.grad).numpy()}
    net.eval()
    return found | {"eval": net(x).detach().numpy()}


@pytest.mark.parametrize("size", RANKS)
def test_batch_norm_sees_the_whole_batch(size, tmp_path):
    want = norms(ALONE)
    for found in in_ranks(size, norms, tmp_path):
        assert found.keys() == want.keys()
        for name in want:
            np.testing.assert_allclose(found[name], want[name], rtol=1e-10, atol=1e-12, err_msg=name)


# ---- training -------------------------------------------------------------------------------------------------


def pictures() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (100, 3, 8, 8), dtype=np.uint8)


class Stop(Exception):
    pass


def train(
    world: World,
    config: Config,
    folder=None,
    *,
    double=True,
    resume=False,
    until=None,
    encoder=None,  # its class
    change=lambda trainer: None,  # made before the first step
) -> dict[str, np.ndarray]:
    """A whole training, or one up to a step and its checkpoint; its losses step by step, its weights, its queue."""
    if double:
        torch.set_default_dtype(torch.float64)
        # The losses lift half precision to float32 by .float(); here it must not take float64 down.
        torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign]
    torch.manual_seed(0)
    trainer = Trainer(config, pictures(), folder=folder, world=world, encoder=encoder and encoder())
    change(trainer)
    if double:
        for branch in (trainer.model.online, trainer.model.target):
            branch.register_forward_pre_hook(lambda _, x: (x[0].double(),))
    if resume:
        assert trainer.resume()
    losses, take = [], trainer.take_step

    def noted(*arguments):
        if trainer.step == until:
            trainer.save()
            raise Stop
        losses.append(take(*arguments))
        return losses[-1]

    trainer.take_step = noted  # type: ignore[assignment]
    with contextlib.suppress(Stop):
        trainer.fit()
    state = {name: t.numpy() for name, t in trainer.model.state_dict().items()}
    return state | {"queue": trainer.queue.entries.numpy(), "losses": torch.stack(losses).numpy()}


def train_with(world, arguments, keywords):
    return train(world, *arguments, **keywords)


def trained(size, folder, *arguments, **keywords):
    """`train` in processes of their own, as it changes torch's default type; what each rank returns."""
    return in_ranks(size, train_with, folder, arguments, keywords)


@pytest.fixture(scope="module")
def config(tiny) -> Config:
    """50 steps of everything: L1 alone at first, then k-means, a copied head, L2, L3, a queue; Adam."""
    return tiny(
        batch_size=20,
        epochs=10,
        cluster_start=0.3,
        prototype_init="kmeans",
        head_init="projector",
        embedding_dim=12,
        projector_dim=12,
        queue_size=50,
        preset="small",
        monitor_images=50,
    )


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
def test_parts_of_a_batch_are_the_same_on_any_number_of_ranks(size, config, tmp_path):
    """Batch norm sees a part, so each part must be made of the same images; the queue takes them in one order."""
    config = config.replace(epochs=2, cluster_start=0.2, micro_batch=20, batch_size=40, queue_size=50)
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


# ---- float32: what rounding becomes in training ---------------------------------------------------------------


class Smooth(torch.nn.Module):
    """An encoder without kinks. A ReLU whose input rounds to the other side of 0 changes a gradient at once."""

    num_features = 16

    def __init__(self) -> None:
        super().__init__()
        layers: list[torch.nn.Module] = []
        for channels in (3, 16):
            conv = torch.nn.Conv2d(channels, 16, 3, stride=2, padding=1, bias=False)
            layers += [conv, torch.nn.BatchNorm2d(16), torch.nn.Tanh()]
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x).mean(dim=(2, 3))


def bias_without_gradient(trainer: Trainer) -> torch.nn.Parameter:
    """The projector's last bias: the predictor's batch norm takes it away again, so its gradient is 0 but for rounding."""
    return trainer.model.online.projector[-1].bias


def hold_bias(trainer: Trainer) -> None:
    """Adam divides a gradient by its size: out of a rounding of 0 it makes a step as long as any other."""
    bias_without_gradient(trainer).register_hook(torch.zeros_like)


def disturb(trainer: Trainer) -> None:
    with torch.no_grad():
        next(trainer.model.online.encoder.parameters())[0, 0, 0, 0] += 1e-7


def test_the_projectors_last_bias_has_no_gradient(config):
    trainer = Trainer(config, pictures())
    seen: list[torch.Tensor] = []
    bias_without_gradient(trainer).register_hook(lambda gradient: seen.append(gradient))
    trainer.model.online.projector[-1].weight.register_hook(lambda gradient: seen.append(gradient))
    trainer.model.train()
    images, ids = next(trainer.feed.batches(torch.arange(20), 20))
    trainer.take_step(images, ids, torch.tensor(0), trainer.schedule.table(0, 1)[0], True)
    small, large = sorted(float(gradient.abs().max()) for gradient in seen)
    assert small < 1e-5 * large
    assert seen[0].dim() + seen[1].dim() == 3


@pytest.mark.parametrize("size", RANKS)
def test_fifty_steps_in_float32_are_those_of_one_process(size, config, tmp_path):
    """All that the float64 test has. Its two sources of chaos are out, and rounding stays rounding: 40 times below the mark."""
    how = {"double": False, "encoder": Smooth, "change": hold_bias}
    (want,), found = (trained(n, tmp_path / str(n), config, **how) for n in (1, size))
    assert want["losses"].shape == (50, 4)
    np.testing.assert_allclose(found[0]["losses"], want["losses"], rtol=1e-5, atol=1e-6)


def test_with_kinks_ranks_differ_no_more_than_one_process_from_itself(config, tmp_path):
    """ReLUs and the free bias: a change of 1e-7 in one weight moves one process's losses as far as a second rank does."""
    single = {"double": False}
    (want,) = trained(1, tmp_path / "one", config, **single)
    (moved,) = trained(1, tmp_path / "moved", config, **single, change=disturb)
    (two, _) = trained(2, tmp_path / "two", config, **single)
    own, ranks = (np.abs(other["losses"] - want["losses"]).max() for other in (moved, two))
    print(f"\nlargest difference of a loss in 50 steps: disturbed {own:.1e}, two ranks {ranks:.1e}")
    assert 1e-5 < ranks < 10 * own


@pytest.mark.parametrize("size", RANKS)
def test_ten_steps_in_float32_by_sgd(size, config, tmp_path):
    """The ResNet as it is: SGD makes little of a rounding of 0, and 10 steps are too few for the kinks."""
    config = config.replace(epochs=2, optimizer="sgd", learning_rate=0.01)
    (want,), found = (trained(n, tmp_path / str(n), config, double=False) for n in (1, size))
    np.testing.assert_allclose(found[0]["losses"], want["losses"], rtol=1e-5, atol=1e-6)


# ---- the closing pass -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("n", [0, 1, 29, 30, 31, 95, 1000])
def test_stretches_are_whole_blocks_and_leave_nothing_out(n, size):
    found = World(0, size).stretches(n, 10)
    assert [i for stretch in found for i in stretch] == list(range(n))
    assert len(found) == size
    if n < 10 * size:
        assert len(found[0]) == n
    else:
        assert all(len(stretch) >= 10 and stretch.start % 10 == 0 for stretch in found)


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
    formula += trainer.parts * 4 * 2 * sum(m.num_features for m in norms)  # batch norm forward, both branches
    formula += trainer.parts * 4 * 2 * sum(m.num_features for m in online)  # and backward
    if trainer.parts > 1:  # the look before, for the codes: as many channels as the target has
        formula += trainer.parts * 4 * 2 * sum(m.num_features for m in norms if m not in online)
    formula += 4 * 2 * 2 * c.sinkhorn_iterations * c.n_clusters  # two views, largest and sum
    formula += 4 * 2 * trainer.local_batch * c.embedding_dim * (c.queue_size > 0)  # the queue's rows
    return seen, formula + 4 * 4  # the four losses


@pytest.mark.parametrize("micro_batch", [None, 10])
def test_what_a_step_sends_is_what_the_docs_say(micro_batch, config, tmp_path):
    config = config.replace(cluster_start=0.0, micro_batch=micro_batch)
    for measured, formula in in_ranks(2, bytes_of_a_step, tmp_path, config):
        assert measured == formula


# ---- the fast form --------------------------------------------------------------------------------------------


def said_by(world: World, config: Config, broken: bool) -> tuple[np.ndarray, int, list[str]]:
    """(losses, pieces that were compiled, warnings of our own)."""
    said: list[str] = []
    logging.getLogger("concurl").addFilter(lambda record: said.append(record.getMessage()) or True)
    if broken and world.rank == 1:

        def compile(function, **how):
            def call(*arguments):
                raise RuntimeError("no compiler on this machine")

            return call

        torch.compile = compile  # type: ignore[assignment]
    losses = train(world, config, double=False)["losses"]
    return losses, counters["stats"]["unique_graphs"], [line for line in said if "torch.compile" in line]


@pytest.mark.parametrize("broken", [False, True], ids=["compiled", "one rank without a compiler"])
def test_on_several_ranks_the_views_are_compiled(broken, config, tmp_path, monkeypatch):
    """They send nothing, so a rank without a compiler keeps step with the others."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    config = config.replace(epochs=1, cluster_start=0.4, optimizer="sgd", learning_rate=0.01)
    plain, fast = (
        in_ranks(2, said_by, tmp_path / how, config.replace(compile=how), broken and how == "on")
        for how in ("off", "on")
    )
    assert [graphs for _, graphs, _ in plain] == [0, 0]
    assert [graphs for _, graphs, _ in fast] == [1, 0 if broken else 1]
    assert [len(said) for _, _, said in fast] == [0, broken]
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
