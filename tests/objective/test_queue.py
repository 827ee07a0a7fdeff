"""The queue: against collections.deque."""

from collections import deque

import pytest
import torch

from concurl.objective.queue import EmbeddingQueue


def oldest_first(queue, view):
    return queue.entries[view].roll(-int(queue.position), dims=0)


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("size", "batches"),
    [(8, [4, 4, 4]), (10, [4] * 7), (7, [3, 1, 7, 2, 5]), (5, [5, 5]), (4, [6, 3, 9, 1]), (1, [3, 1])],
    ids=["divides", "does not divide", "uneven", "whole", "batch larger than queue", "one entry"],
)
def test_ring_is_a_deque(size, batches):
    queue, start = EmbeddingQueue(size, 3), drawn(size, 3)
    queue.fill(start)
    plain = [deque(start, maxlen=size) for _ in range(2)]
    for step, n in enumerate(batches):
        views = drawn(2, n, 3, seed=step + 1)
        queue.push(views)
        for view in range(2):
            plain[view].extend(views[view])
            assert torch.equal(oldest_first(queue, view), torch.stack(list(plain[view])))


@pytest.mark.parametrize("n", [1, 3, 5, 8])
def test_fill_repeats_what_there_is(n):
    queue, z = EmbeddingQueue(5, 2), drawn(n, 2)
    queue.fill(z)
    for view in range(2):
        assert torch.equal(queue.entries[view], torch.stack([z[i % n] for i in range(5)]))


def test_entries_hold_no_graph_and_travel_with_the_state():
    queue = EmbeddingQueue(4, 2)
    z = drawn(2, 3, 2).requires_grad_()
    queue.fill(z[0])
    assert not queue.entries.requires_grad
    queue.push(z)
    assert not queue.entries.requires_grad
    other = EmbeddingQueue(4, 2)
    other.load_state_dict(queue.state_dict())
    queue.push(2 * z)
    other.push(2 * z)
    assert torch.equal(queue.entries, other.entries)
