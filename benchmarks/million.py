"""A million tiny images in tar shards, from listing to the last label: seconds, images/s and memory of every process.

    python benchmarks/million.py --images 1000000 --folder /tmp/million

Makes the shards (distinct 8 x 8 PNGs of ten colours, named as another tool would), lists them twice (the second time from the
index), decodes them into the packed copy, trains one epoch, labels everything in memory (the last part of fit), and labels
everything again by several processes of `concurl predict --shard`, whose tables are then merged.

Memory is read from /proc while each process runs. "private" is what the process itself holds; "mapped" is files (torch's
libraries, the packed copy) that the kernel may drop. Training reads the packed copy step by step, as it does for a set that
does not fit into memory.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import os
import platform
import shutil
import struct
import subprocess
import sys
import tarfile
import threading
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

PER_SHARD = 10_000
SIDE = 8
CLUSTERS = 10
OPTIONS = {
    "n_clusters": CLUSTERS,
    "encoder": "tiny",
    "stem": "small",
    "image_size": SIDE,
    "preset": "small",
    "projector_hidden": 16,
    "projector_dim": 8,
    "cluster_hidden": 16,
    "embedding_dim": 8,
    "projection_dim": 4,
    "n_transforms": 5,
    "batch_size": 250,
    "epochs": 1,
    "compile": "off",
}


# ---- the images -----------------------------------------------------------------------------------------------


def png(pixels: np.ndarray) -> bytes:
    """By hand, as Pillow would take most of the time."""
    rows = np.zeros((SIDE, 1 + 3 * SIDE), np.uint8)  # a 0 before each row: no filter
    rows[:, 1:] = pixels.reshape(SIDE, -1)
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows.tobytes(), 1)),
        (b"IEND", b""),
    ]
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def make_shard(task: tuple[str, int, int]) -> int:
    """One shard; its length in bytes."""
    path, first, count = task
    rng = np.random.default_rng(first)
    colours = np.random.default_rng(0).integers(40, 200, (CLUSTERS, 1, 1, 3))
    pixels = (colours[rng.integers(0, CLUSTERS, count)] + rng.integers(0, 8, (count, SIDE, SIDE, 3))).astype(np.uint8)
    with open(path, "wb") as file:
        for number in range(count):
            data = png(pixels[number])
            member = tarfile.TarInfo(f"{first + number:08d}.png")
            member.size = len(data)
            file.write(member.tobuf() + data + bytes(-len(data) % 512))
        file.write(bytes(1024))
    return os.path.getsize(path)


def make(folder: Path, images: int, processes: int) -> int:
    folder.mkdir(parents=True)
    starts = range(0, images, PER_SHARD)
    tasks = [(str(folder / f"{n:05d}.tar"), start, min(PER_SHARD, images - start)) for n, start in enumerate(starts)]
    with multiprocessing.Pool(processes) as pool:
        return sum(pool.imap_unordered(make_shard, tasks))


# ---- what is measured, each in a process of its own -----------------------------------------------------------


def say(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, "time": time.monotonic(), **facts}), flush=True)


def listing(shards: str, cache: str) -> None:
    from concurl.data.files.listing import list_source

    for event in ("read", "index"):
        say(f"{event} begins")
        found = list_source(shards, cache=Path(cache))
        say(f"{event} ends", images=len(found))
        del found


def fit(shards: str, cache: str, folder: str, device: str) -> None:
    from concurl.config import Config
    from concurl.data.sources import open_source
    from concurl.data.storage import feed
    from concurl.runs import run
    from concurl.training import trainer as training

    for event in ("pack", "open"):
        say(f"{event} begins")
        images = open_source(shards, image_size=SIDE, cache=Path(cache)).images
        say(f"{event} ends", images=len(images), skipped=len(images.skipped))
    config = Config().replace(**OPTIONS, device=device)
    training.make_feed = feed.Streaming  # type: ignore[attr-defined]
    trainer = training.Trainer(config, images.images, folder=Path(folder))
    begun = time.monotonic()
    say("train begins", feed=trainer.feed.description, device=str(trainer.arithmetic))
    run.train(trainer, images.names, resume=False)
    say("train ends", loss=trainer.metrics.rows[-1]["loss"])
    say("label begins")
    run.conclude(trainer, images, None, begun, embedded=run.embed(trainer, images.images, scored=False))
    say("label ends")


# ---- watching -------------------------------------------------------------------------------------------------


class Watch:
    """Reads the memory of a process and of its children, four times a second."""

    def __init__(self, process: int) -> None:
        self.process = process
        self.samples: list[tuple[float, int, int, int, int]] = []  # time, private, mapped, children, largest child
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            with suppress(OSError, ValueError):  # it, or a child, has just ended
                private, mapped = memory(self.process)
                children = [sum(memory(child)) for child in children_of(self.process)]
                self.samples.append((time.monotonic(), private, mapped, len(children), max(children, default=0)))
            if self._stop.wait(0.25):
                return

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def memory(process: int) -> tuple[int, int]:
    """(private, mapped) resident MiB."""
    resident, mapped = map(int, Path(f"/proc/{process}/statm").read_text().split()[1:3])
    if not resident:
        raise ValueError("a process that has ended, but was not yet waited for")
    page = os.sysconf("SC_PAGE_SIZE")
    return (resident - mapped) * page // 2**20, mapped * page // 2**20


def children_of(process: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == process:
                found.append(int(path.parent.name))
    return found


def watched(stage: str, *arguments: str) -> None:
    """Run a stage in a process of its own; print a line for each of its parts."""
    command = [sys.executable, __file__, "--stage", stage, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    watch = Watch(process.pid)
    assert process.stdout is not None
    begun: dict[str, dict[str, Any]] = {}
    images = 0
    for line in process.stdout:
        if not line.startswith('{"event"'):
            continue
        found = json.loads(line)
        part, _, moment = found["event"].partition(" ")
        if moment == "begins":
            begun[part] = found
            continue
        time.sleep(0.3)  # the last sample
        images = found.get("images", images)
        show(part, begun[part]["time"], found["time"], images, watch.samples)
        others = {k: v for k, v in {**begun[part], **found}.items() if k not in ("event", "time", "images")}
        if others:
            print("        ", ", ".join(f"{name}: {value}" for name, value in others.items()))
    watch.stop()
    if process.wait():
        raise SystemExit(f"{stage} failed")


def show(part: str, begun: float, ended: float, images: int, samples: list[tuple[float, int, int, int, int]]) -> None:
    within = [sample for sample in samples if begun <= sample[0] <= ended] or samples[-1:]
    seconds = ended - begun
    private, mapped, workers, largest = (max(column) for column in list(zip(*within, strict=True))[1:])
    memory_columns = f"{private:8} {mapped:7} {workers:8} {largest:8}"
    print(f"{part:>8} {seconds:8.1f} {images / seconds:10,.0f} {memory_columns}", flush=True)
    if len(within) >= 10:
        chosen = [within[round(i * (len(within) - 1) / 9)] for i in range(10)]
        print("         private over time:", *(sample[1] for sample in chosen))
        if workers:
            print("         largest worker   :", *(sample[4] for sample in chosen))


def predict(shards: Path, cache: Path, run: Path, images: int, jobs: int, device: str) -> None:
    """`jobs` processes, one part each, at once; then merged and counted."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache.parent), "OMP_NUM_THREADS": "1"}
    begun = time.monotonic()
    parts = run.parent / "parts"
    command = [sys.executable, "-m", "concurl", "predict", str(run), str(shards), "-o", str(parts), "--quiet"]
    command += ["--device", device]
    shares = ([*command, "--shard", f"{i}/{jobs}"] for i in range(1, jobs + 1))
    processes = [subprocess.Popen(share, env=environment, stdout=subprocess.DEVNULL) for share in shares]
    watches = [Watch(process.pid) for process in processes]
    failed = [process.wait() for process in processes]
    seconds = time.monotonic() - begun
    for watch in watches:
        watch.stop()
    if any(failed):
        raise SystemExit("predict failed")
    largest = max(watches, key=lambda watch: max(sample[1] for sample in watch.samples))
    ended = largest.samples[-1][0]
    show("predict", ended - seconds, ended, images, largest.samples)
    labels = run.parent / "labels.csv"
    subprocess.run([sys.executable, "-m", "concurl", "merge", str(parts), "-o", str(labels)], check=True)
    with open(labels, "rb") as file:
        next(file)
        paths = [line.split(b",", 1)[0] for line in file]
    assert len(paths) == len(set(paths)) == images, (len(paths), len(set(paths)), images)
    print(f"         {jobs} processes; {len(paths):,} rows, no path twice")
    with open(labels, newline="") as new, open(run / "assignments.csv", newline="") as old:
        pairs = zip(csv.DictReader(new), csv.DictReader(old), strict=True)
        apart = sum((a["path"], a["cluster"]) != (b["path"], b["cluster"]) for a, b in pairs)
    print(f"         labels that differ from those of fit itself: {apart}")


def cores() -> int:
    return len(os.sched_getaffinity(0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/million"), help="is made, and deleted at the end")
    parser.add_argument("--jobs", type=int, default=min(16, cores()), help="processes that predict")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--stage", choices=["listing", "fit"], help=argparse.SUPPRESS)
    given, arguments = parser.parse_known_args()
    if given.stage:
        (listing if given.stage == "listing" else fit)(*arguments)
        return
    if given.folder.exists():
        raise SystemExit(f"{given.folder} exists already")
    folder, shards, cache = given.folder, given.folder / "shards", given.folder / "concurl"  # predict's own cache
    import torch

    print(
        f"{given.images:,} images; {cores()} cores, {given.device}; Python {platform.python_version()}, torch {torch.__version__}"
    )
    try:
        begun = time.monotonic()
        length = make(shards, given.images, cores())
        print(
            f"made {length / 2**20:,.0f} MiB in {len(list(shards.iterdir()))} shards in {time.monotonic() - begun:.1f} s"
        )
        print(
            "   stage  seconds   images/s  private  mapped  workers  largest   (memory: most, in MiB, of each process)"
        )
        run = folder / "run"
        run.mkdir()
        watched("listing", str(shards), str(cache))
        watched("fit", str(shards), str(cache), str(run), given.device)
        predict(shards, cache, run, given.images, given.jobs, given.device)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
