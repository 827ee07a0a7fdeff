"""A container that may use less time than its cores have is not flooded with threads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from concurl import cores
from concurl.config import Config
from concurl.data.checking.workers import worker_count
from concurl.training.device import Arithmetic


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr(cores, "CONTROL_GROUP", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("said", "usable"),
    [
        ("max 100000", 64),
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("5000 100000", 1),
        ("9900000 100000", 64),
        ("", 64),
    ],
)
def test_a_container_s_share_of_the_time(group: Path, said: str, usable: int) -> None:
    (group / "cpu.max").write_text(f"{said}\n")
    assert cores.usable_cores() == usable


@pytest.mark.parametrize(("quota", "usable"), [("-1", 64), ("300000", 3)])
def test_the_same_by_the_older_files(group: Path, quota: str, usable: int) -> None:
    (group / "cpu").mkdir()
    (group / "cpu" / "cpu.cfs_quota_us").write_text(quota)
    (group / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert cores.usable_cores() == usable


def test_without_either_all_cores_are_usable(group: Path) -> None:
    assert cores.usable_cores() == worker_count(None, 10**6) == 64


@pytest.mark.parametrize(("asked", "threads"), [(None, 1), ("2", 2)])
def test_training_takes_no_more_threads_unless_told(
    group: Path, monkeypatch: pytest.MonkeyPatch, asked: str | None, threads: int
) -> None:
    (group / "cpu.max").write_text("100000 100000\n")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if asked is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        Arithmetic.of(Config(device="cpu"))
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
