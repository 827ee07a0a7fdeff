"""Batches: a function of seed and epoch, the same from memory and from disk."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from concurl.data.batches import epoch_order, sample
from concurl.data.storage.feed import Resident, Streaming, make_feed, read_ahead
from concurl.data.storage.fingerprint import fingerprint
from concurl.data.storage.subset import pick

CPU = torch.device("cpu")


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (50, 3, 6, 6), dtype=np.uint8)


def test_an_epoch_is_a_permutation_that_only_seed_and_epoch_decide() -> None:
    torch.manual_seed(1)
    first = epoch_order(3, 7, 1000)
    torch.manual_seed(2)
    np.random.seed(5)  # noqa: NPY002 (the point is that it does not matter)
    assert torch.equal(epoch_order(3, 7, 1000), first)
    assert torch.equal(first.sort().values, torch.arange(1000))
    assert not torch.equal(epoch_order(3, 8, 1000), first)
    assert not torch.equal(epoch_order(4, 7, 1000), first)


def test_a_sample_is_fixed_ascending_and_without_repetition() -> None:
    chosen = sample(0, 1000, 100)
    assert torch.equal(chosen, sample(0, 1000, 100))
    assert not torch.equal(chosen, sample(1, 1000, 100))
    assert torch.equal(chosen, chosen.unique())
    assert len(chosen) == 100
    assert torch.equal(sample(0, 5, 100), torch.arange(5))
    assert not torch.equal(chosen, epoch_order(0, 0, 1000)[:100].sort().values)


@pytest.mark.parametrize("kind", [Resident, Streaming])
def test_full_batches_in_order_with_their_own_images(kind: type, images: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "pack.npy"
    np.save(path, images)
    feed = kind(np.load(path, mmap_mode="r"), CPU)
    order = epoch_order(0, 0, 50)
    batches = list(feed.batches(order, 8))
    assert len(batches) == 6  # two images are left over
    assert torch.equal(torch.cat([ids for _, ids in batches]), order[:48])
    for pixels, ids in batches:
        np.testing.assert_array_equal(pixels.numpy(), images[ids.numpy()])


def test_a_disk_is_read_in_ascending_order(images: np.ndarray) -> None:
    asked: list[np.ndarray] = []

    class Disk(np.ndarray):
        def __getitem__(self, ids: np.ndarray) -> np.ndarray:
            asked.append(ids)
            return np.asarray(self)[ids]

    list(Streaming(images.view(Disk), CPU).batches(epoch_order(0, 0, 50), 8))
    assert len(asked) == 6
    assert all((np.diff(ids) > 0).all() for ids in asked)


@pytest.mark.parametrize("kind", [Resident, Streaming])
def test_a_choice_of_images_is_read_like_a_set_of_its_own(kind: type, images: np.ndarray) -> None:
    chosen = sample(0, 50, 30).numpy()
    picked, copied = pick(images, chosen), images[chosen]
    assert (len(picked), picked.shape, picked.nbytes) == (30, copied.shape, copied.nbytes)
    assert fingerprint(picked) == fingerprint(copied)
    feeds = (kind(some, CPU) for some in (picked, copied))
    found, wanted = (list(feed.batches(epoch_order(0, 0, 30), 8)) for feed in feeds)
    assert len(found) == 3
    assert all(
        torch.equal(*pair)
        for ours, theirs in zip(found, wanted, strict=True)
        for pair in zip(ours, theirs, strict=True)
    )


def test_a_reader_that_is_left_or_fails_ends(images: np.ndarray) -> None:
    feed = Streaming(images, CPU)
    batches = feed.batches(epoch_order(0, 0, 50), 4)
    next(batches)
    batches.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("concurl-reader")]
    with pytest.raises(IndexError):
        list(feed.batches(torch.tensor([0, 99]), 2))
    assert not [t for t in threading.enumerate() if t.name.startswith("concurl-reader")]


def test_a_reader_goes_a_little_ahead_and_ends_when_it_is_left() -> None:
    begun: list[int] = []

    def read(item: int) -> torch.Tensor:
        begun.append(item)
        time.sleep(0.05)
        return torch.tensor(item)

    items = iter(range(99))
    tensors = read_ahead(items, read, ahead=9)
    assert [int(next(tensors)) for _ in range(3)] == [0, 1, 2]
    assert next(items) == 12  # 9 wait to be read, and no more
    tensors.close()
    assert len(begun) < 10


@pytest.mark.parametrize("chosen", [None, np.arange(0, 50, 2)], ids=["all", "some"])
def test_what_does_not_fit_is_streamed(
    images: np.ndarray, chosen: np.ndarray | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "pack.npy", images)
    mapped = np.load(tmp_path / "pack.npy", mmap_mode="r")
    mapped = mapped if chosen is None else pick(mapped, chosen)
    monkeypatch.setattr("concurl.data.storage.feed.free_host_memory", lambda: mapped.nbytes)
    assert isinstance(make_feed(mapped, CPU), Streaming)
    feed = make_feed(images, CPU)
    assert isinstance(feed, Resident)
    assert np.shares_memory(feed.images.numpy(), images)  # an array is in memory as it is, and stays there once
    monkeypatch.setattr("concurl.data.storage.feed.free_host_memory", lambda: 10 * mapped.nbytes)
    assert isinstance(make_feed(mapped, CPU), Resident)


@pytest.mark.filterwarnings("error")
def test_an_array_that_torch_cannot_take_is_copied(images: np.ndarray) -> None:
    images.flags.writeable = False
    for array in (images, images[::-1], images[..., ::2]):
        feed = make_feed(array, CPU)
        assert isinstance(feed, Resident)
        np.testing.assert_array_equal(feed.images.numpy(), array)
