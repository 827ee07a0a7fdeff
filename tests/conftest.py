"""For all tests: one thread (the machine is small and shared), repeatable hypothesis, Ctrl-C, a cache, a Config of test size."""

import os
import signal

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded; child processes inherit it

import pytest
import torch
from hypothesis import settings

from concurl.config import Config

torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it, and these tests send it
# Deadlines mean nothing on a busy machine. The same examples each time: red means that the code has changed.
settings.register_profile("concurl", deadline=None, derandomize=True, database=None)
settings.load_profile("concurl")

TINY = {
    "n_clusters": 4,
    "encoder": "tiny",
    "stem": "small",
    "image_size": 8,
    "preset": "none",
    "projector_hidden": 16,
    "projector_dim": 12,
    "cluster_hidden": 16,
    "embedding_dim": 8,
    "projection_dim": 3,
    "n_transforms": 5,
    "epochs": 1,
    "batch_size": 16,
    "device": "cpu",
}


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """Where images are packed: never in the user's own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def tiny():
    """tiny(alpha=0, ...): a settled Config of a network that a test can afford."""

    def make(**changes) -> Config:
        return Config(**{**TINY, **changes})

    return make
