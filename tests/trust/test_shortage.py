"""No memory, or no room on the disk: said in a line, with a remedy, and nothing half written."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from user_runs import FIT, half_files

from concurl.cli import main
from concurl.runs import runfolder
from concurl.training.step import Step

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."),
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("could not create a primitive"),
    ],
    ids=["cuda", "python", "cpu", "cublas", "onednn"],
)
def test_out_of_memory_names_a_part_that_fits(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def step(self: Step, *arguments: Any) -> torch.Tensor:
        raise error

    monkeypatch.setattr(Step, "__call__", step)
    assert main(FIT) == 1
    said = capsys.readouterr().err
    assert "batch_size=8" in said
    assert "--micro-batch 4 would probably fit" in said
    assert "Traceback" not in said


def test_a_queue_that_fills_the_memory_is_not_mended_by_a_part_of_the_batch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Step, "__call__", lambda *arguments: torch.zeros(2**50))
    assert main([*FIT, "--queue-size", "100000"]) == 1
    said = capsys.readouterr().err
    assert "take a smaller --queue-size" in said
    assert "--micro-batch" not in said


def test_the_fitting_part_follows_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    from concurl.config import Config
    from concurl.training import memory

    config = Config(encoder="resnet18", stem="small", image_size=32, batch_size=4096)
    sizes = []
    for gigabytes in (0.001, 1, 4, 16):
        monkeypatch.setattr(memory, "free_host_memory", lambda: int(gigabytes * 2**30))  # noqa: B023
        sizes.append(memory.fitting_part(config, torch.device("cpu")))
    assert sizes[0] == 1
    assert sizes == sorted(sizes)
    assert sizes[2] == 4 * sizes[1]
    assert sizes[-1] <= 2048, "never the size that failed"
    assert memory._bytes_per_image(config.replace(batch_norm="apart")) == memory._bytes_per_image(config)
    parts = config.replace(micro_batch=64)
    assert memory.fitting_part(parts, torch.device("cpu")) == 32, "nor the part that failed"


def test_what_did_not_fit_is_let_go_before_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    import weakref

    from concurl.training import memory

    held: list[weakref.ref[torch.Tensor]] = []

    def step(self: Step, *arguments: Any) -> torch.Tensor:
        activations = torch.zeros(9)
        held.append(weakref.ref(activations))
        try:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        except RuntimeError:
            raise RuntimeError("CUDA error: operation failed during capture") from None  # as a graph's recording ends

    alive: list[bool] = []
    monkeypatch.setattr(Step, "__call__", step)
    monkeypatch.setattr(memory, "free_host_memory", lambda: alive.append(held[0]() is not None) or 2**30)
    assert main(FIT) == 1
    assert alive == [False]


def test_memory_left_is_what_the_limits_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    from concurl.hostmemory import free_host_memory

    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    monkeypatch.setattr(resource, "getrlimit", lambda limit: (mapped + 2**28, -1))
    assert 2**27 < free_host_memory() <= 2**28


@pytest.mark.parametrize(
    "error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")]
)
def test_out_of_memory_outside_training(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(FIT) == 0
    capsys.readouterr()

    def labels(*arguments: Any) -> None:
        raise error

    monkeypatch.setattr("concurl.runs.assignments.assign_embeddings", labels)
    assert main(["predict", "run", "photos", "-o", "new.csv"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("concurl: out of memory (")
    assert "--device" in said
    assert half_files(Path()) == []


def test_another_error_is_not_taken_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(self: Step, *arguments: Any) -> torch.Tensor:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(Step, "__call__", step)
    with pytest.raises(RuntimeError, match="mat1"):
        main(FIT)


def test_the_room_is_that_of_five_checkpoints_less_what_the_run_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    weights, rest = torch.zeros(1_000_000), torch.zeros(9_000_000)
    state = {"model.online.x": weights, "model.target.x": weights, "queue.entries": rest}
    checkpoint = 4 * weights.nbytes + rest.nbytes  # with two momenta for each weight
    for free, file, there, told in (
        (5 * checkpoint, "mine.bin", 0, True),  # no room for the page
        (5 * checkpoint + runfolder.PAGE + 10**6, "mine.bin", 0, False),
        (3 * checkpoint, "mine.bin", 4 * checkpoint, True),  # a file of the user's makes no room
        (3 * checkpoint, "checkpoints/step-1/state.safetensors", 4 * checkpoint, False),
    ):
        caplog.clear()
        monkeypatch.setattr(shutil, "disk_usage", lambda path, free=free: SimpleNamespace(free=free))
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        with open(tmp_path / file, "wb") as written:
            written.truncate(there)
        runfolder.warn_of_little_room(tmp_path, state, 100, 8)
        assert bool(caplog.records) is told, (free, file)


@pytest.mark.parametrize("free", [0, 10**9])
def test_a_disk_too_small_for_the_run_is_told_at_its_start(
    free: int, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = shutil.disk_usage
    at_run = {here / "run": SimpleNamespace(free=free)}
    monkeypatch.setattr(shutil, "disk_usage", lambda path: at_run.get(Path(path).resolve()) or real(path))
    assert main(FIT) == 0  # a quota or a share may know better: it is tried all the same
    told = re.search(r"0 MB are free on its disk, and the run may write (\d+) more", capsys.readouterr().err)
    assert (told is not None) is (free == 0)
    if told is not None:
        written = sum(path.stat().st_size for path in (here / "run").rglob("*") if path.is_file())
        assert written <= 1e6 * int(told[1]) < 1e6 + 4 * written + 15e6


def on_small_disks(tries: int, seed: int, cwd: Path) -> dict[str, Any]:
    """disk_full.py in a mount namespace of its own; skipped where there are none."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("needs mount namespaces")
    script = Path(__file__).with_name("disk_full.py")
    command = ["unshare", "-rm", sys.executable, str(script), str(tries), str(seed)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    tally: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(tally)
    return tally


def test_a_few_full_disks_and_one_read_only(here: Path) -> None:
    tally = on_small_disks(4, 1, here)
    assert tally["full"] == 4 + 4  # of a run, and of each other writer
    assert tally["read-only"] == 2
    assert half_files(here) == []


def test_a_disk_that_fills_while_folders_are_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import errno
    import shutil

    assert main(FIT) == 0
    plain, copied = shutil.copyfile, []

    def copy(source: Path, target: Path) -> None:
        if len(copied) == 3:
            Path(target).write_bytes(b"hal")
            raise OSError(errno.ENOSPC, "No space left on device")
        copied.append(plain(source, target))

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", copy)
        assert main(["export", "run", "--folders", "copy", "-o", "out"]) == 74
    assert "bytes" in capsys.readouterr().err
    assert list(Path("out").rglob("*")) == []  # or the same command would be refused once there is room
    assert main(["export", "run", "--folders", "copy", "-o", "out"]) == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_fifty_full_disks(here: Path) -> None:
    assert on_small_disks(50, 2, here)["full"] >= 50


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_real_lack_of_memory_and_the_script_for_the_gpu(here: Path) -> None:
    """gpu.py on a CPU: a limit on the process stands for a full card. What it advises must then fit."""
    script = Path(__file__).with_name("gpu.py")
    command = [sys.executable, str(script), "--output", "gpu", "--device", "cpu", "--parts", "off", "memory"]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((here / "gpu" / "gpu.json").read_text())
    assert found["off"]["largest_difference_after_resume"] == 0
    assert found["memory"]["exit_code"] == 1
    print(found["memory"]["message"])
