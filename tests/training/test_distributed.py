"""What ranks share: their shares of the work, codes and batch norm over the whole batch. One process is the reference."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from concurl.data.batches import epoch_order
from concurl.errors import RunError, UserError
from concurl.objective.sinkhorn import sinkhorn
from concurl.training.batchnorm import synchronise
from concurl.training.distributed import World
from ranks import RANKS, in_ranks

ALONE = World()


# ---- shares ---------------------------------------------------------------------------------------------------


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


# ---- processes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "backend", "chosen"), [(1, "gloo", 0), (2, "cpu:gloo,cuda:nccl", 1), (0, "gloo", None)]
)
def test_processes_that_share_a_gpu_talk_through_gloo(gpus, backend, chosen, monkeypatch):
    """NCCL refuses two ranks on one GPU; rank 1 of 2 on a machine with one GPU takes that one."""
    for name, value in {"RANK": 1, "LOCAL_RANK": 1, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(UserError, match="but not MASTER_ADDR: start with torchrun, or unset them"):
        World.join()
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29500")
    taken: dict[str, object] = {"device": None}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: taken.update(device=device))
    dist = torch.distributed
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **others: taken.update(backend=backend))
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    assert World.join() == World(1, 2, joined=True)
    assert taken == {"device": chosen, "backend": backend}


def test_a_lost_rank_is_told_in_one_line():
    def fail(world, words):
        with world.lost_rank_told():
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


def codes_of_rank(world: World) -> tuple[np.ndarray, np.ndarray]:
    far = torch.tensor([1000.0, -1000.0])  # cosines over an epsilon of 0.001: exp overflows
    torch.testing.assert_close(world.log_reduce(far), far + np.log(world.size))
    mine = torch.split(scores(), UNEVEN[world.size])[world.rank]
    q, u = sinkhorn(mine, 0.05, 3, log_reduce=world.log_reduce)
    return q.numpy(), u.numpy()


@pytest.mark.parametrize("size", RANKS)
def test_codes_do_not_depend_on_the_ranks(size, tmp_path):
    q, u = sinkhorn(scores(), 0.05, 3)
    found = in_ranks(size, codes_of_rank, tmp_path)
    np.testing.assert_allclose(np.concatenate([part[0] for part in found]), q, atol=1e-6)
    assert np.array_equal(np.concatenate([part[0] for part in found]).argmax(1), q.argmax(1))
    for _, scalings in found:
        np.testing.assert_allclose(scalings, u, atol=2e-5)  # s / epsilon is up to 20: 1e-6 of that


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
