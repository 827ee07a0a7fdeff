"""On a GPU: kill a run and resume it, and let one run out of memory. `python tests/trust/gpu.py --output DIR`

Needs what concurl needs, and no pytest. About four minutes on a large card that nobody else uses:

- off, on: trainings without and with torch.compile. Two are left alone: how far they come apart is the yardstick (runs
  are reproducible by default, so it should be 0). One is killed in the middle (SIGKILL) and resumed: after that its loss
  may differ from the first one's by no more than twice the yardstick, or than one rounding of bfloat16. With
  --compile-twice the second has kernels of its own making: torch may choose others.
- memory: all but 3 GiB of the card are taken, then a batch of 8192 is asked for. The answer must be exit code 1 and one
  line with a batch size, and a run with that batch size must succeed.

What was found is printed, and written to DIR/gpu.json. The exit code is 0 if all of it is as promised.
`--device cpu` goes the same way with a small network, to see that the script itself is sound.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

SOURCE = Path(__file__).resolve().parents[2] / "src"
BFLOAT16_ROUNDING = 2.0**-8
GIB = 2**30
LEFT = 3 * GIB  # of the card, for the run that is to fail
EPOCHS = {"off": 12, "on": 30}  # compiled, an epoch is over in a fraction of the time
SIZES = {  # images to train on, batch, the batch that must not fit, and the network
    "cuda": (4096, 256, 8192, ["--encoder", "resnet18", "--precision", "bfloat16"]),
    "cpu": (256, 32, 2048, ["--encoder", "tiny", "--precision", "float32"]),
}


class Bench:
    """Starts runs, all with one set of images, and gives what they said and left."""

    def __init__(self, folder: Path, device: str, stem: str) -> None:
        self.folder, self.device, self.stem = folder, device, stem
        self.kind = "cuda" if device.startswith("cuda") else "cpu"
        self.n_images, self.batch, self.huge, self.network = SIZES[self.kind]
        self.going: list[subprocess.Popen[bytes]] = []
        folder.mkdir(parents=True, exist_ok=True)
        self.environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")])),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),  # the first one compiles for all
        }

    def start(self, run: str, *options: str, limit: int | None = None) -> subprocess.Popen[bytes]:
        def confined() -> None:
            assert limit is not None
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

        process = subprocess.Popen(
            [sys.executable, "-m", "concurl", "fit", *options, "-o", run, "--no-report"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=open(self.folder / f"{run}.stderr", "ab"),  # noqa: SIM115 (the process has it)
            preexec_fn=None if limit is None else confined,
        )
        self.going.append(process)
        return process

    def forget_kernels(self) -> None:
        self.environment["TORCHINDUCTOR_CACHE_DIR"] += "-again"

    def train(self, run: str, compiled: str) -> subprocess.Popen[bytes]:
        # With one form of the step there is one to compile; without compiling, clustering begins in the middle.
        start = "0" if compiled == "on" else "0.3"
        options = [*self.options(self.batch, EPOCHS[compiled]), "--compile", compiled, "--cluster-start", start]
        return self.start(run, "pictures", "--limit", str(self.n_images), *options, "--checkpoint-epochs", "4")

    def options(self, batch: int, epochs: int) -> list[str]:
        plain = "-k 10 --image-size 32 --preset small --projector-hidden 512 --cluster-hidden 512"
        plain += f" --stem {self.stem} --monitor-every 10"
        sizes = ["--batch-size", str(batch), "--epochs", str(epochs)]
        return [*plain.split(), *self.network, *sizes, "--device", self.device]

    def said(self, run: str) -> str:
        return (self.folder / f"{run}.stderr").read_text(errors="replace")

    def losses(self, run: str) -> dict[int, float]:
        path = self.folder / run / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        found = {}
        for line in lines:
            with contextlib.suppress(ValueError):  # the last one may be half written
                row = json.loads(line)
                found[int(row["epoch"])] = float(row["loss"])
        return found

    def ended_well(self, run: str, process: subprocess.Popen[bytes]) -> None:
        code = process.wait(300)
        if code != 0:
            raise SystemExit(f"{run}: exit code {code}\n{self.said(run)[-3000:]}")

    def stop_all(self) -> None:
        for process in self.going:
            if process.poll() is None:
                process.kill()
                process.wait()


def pictures(folder: Path, n: int) -> None:
    """Ten kinds of blobs, as files: the runs read them as they would anybody's."""
    import numpy as np
    from PIL import Image

    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0:32, 0:32]
    for i in range(n):
        kind = i % 10
        cy, cx = rng.uniform(8, 24, 2)
        shape = np.abs(y - cy) + np.abs(x - cx) if kind % 2 else np.hypot(y - cy, x - cx)
        pixels = rng.integers(0, 60, (32, 32, 3))
        pixels[shape < 4 + kind] = [25 * kind, 255 - 25 * kind, 40 * (kind % 5)]
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i:05d}.png", compress_level=0)


# ---- kill and resume ------------------------------------------------------------------------------------------


def kill_in_the_middle(bench: Bench, run: str, process: subprocess.Popen[bytes], epochs: int) -> dict[int, float]:
    """SIGKILL once half the epochs are done and a third of them saved; the losses of the epochs that were done."""
    third = epochs * (bench.n_images // bench.batch) // 3
    while process.poll() is None:
        saved = [int(path.name[5:]) for path in (bench.folder / run / "checkpoints").glob("step-*")]
        if len(bench.losses(run)) >= epochs // 2 and max(saved, default=0) >= third:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.01)
    code = process.wait()
    if code != -signal.SIGKILL:
        raise SystemExit(f"{run}: it ended before it was killed (exit code {code})\n{bench.said(run)[-3000:]}")
    return bench.losses(run)


def kill_and_resume(bench: Bench, compiled: str, until: float, compile_twice: bool) -> dict[str, Any]:
    """The second run that is left alone is left out if the clock is past `until`."""
    epochs, names = EPOCHS[compiled], [f"{compiled}-{name}" for name in ("first", "killed", "second")]
    bench.ended_well(names[0], bench.train(names[0], compiled))
    before = kill_in_the_middle(bench, names[1], bench.train(names[1], compiled), epochs)
    bench.ended_well(names[1], bench.start(names[1], "--resume"))
    found = re.search(r"resumed at step (\d+) of (\d+)", bench.said(names[1]))
    if found is None:
        raise SystemExit(f"{names[1]}: it was not resumed\n{bench.said(names[1])[-3000:]}")
    if compile_twice:
        bench.forget_kernels()
    if time.monotonic() < until:
        bench.ended_well(names[2], bench.train(names[2], compiled))
    a, c, b = (bench.losses(run) for run in names)
    resumed = int(found[1]) // (bench.n_images // bench.batch)  # the epoch in which it went on
    apart = {e: abs(a[e] - b[e]) for e in b}
    after = {e: abs(a[e] - c[e]) for e in c if e >= resumed}
    twice = {e: abs(before[e] - c[e]) for e in before if e >= resumed}
    allowed = {e: max(2 * max(apart.values(), default=0.0), BFLOAT16_ROUNDING * abs(a[e])) for e in a}
    fell_back = [run for run in names if b or run != names[2] if "torch.compile failed" in bench.said(run)]
    print(f"epoch  left alone  killed and resumed  left alone, second time   (compile {compiled})")
    for e in sorted(a):
        mark = "*" if e >= resumed else " "
        print(f"{e:5d}  {a[e]:.6f}    {c.get(e, float('nan')):.6f}{mark}           {b.get(e, float('nan')):.6f}")
    return {
        "epochs": epochs,
        "killed_after_epochs": len(before),
        "resumed_at_step": f"{found[1]} of {found[2]}",
        "largest_difference_of_two_left_alone": max(apart.values(), default=None),
        "largest_difference_after_resume": max(after.values()),
        "the_same_relative_to_the_loss": max(after[e] / abs(a[e]) for e in after),
        "in_the_first_epoch_after_resume": after[resumed],
        "largest_difference_in_epochs_trained_twice": max(twice.values(), default=None),
        "identical_after_resume": all(a[e] == c.get(e) for e in a if e >= resumed),
        "torch_compile_failed_in": fell_back,
        "as_promised": set(c) == set(a) and all(after[e] <= allowed[e] for e in after) and not fell_back,
        "losses": {"left alone": a, "killed and resumed": c, "left alone, second time": b},
    }


# ---- out of memory --------------------------------------------------------------------------------------------


def out_of_memory(bench: Bench) -> dict[str, Any]:
    limit = None if bench.kind == "cuda" else 4 * GIB  # on a CPU a limit of the process stands for the card's
    taken = None
    if bench.kind == "cuda":
        free, total = torch.cuda.mem_get_info(bench.device)
        taken = torch.empty(free - LEFT, dtype=torch.uint8, device=bench.device)
        left = torch.cuda.mem_get_info(bench.device)[0]
        print(f"{left / GIB:.2f} of {total / GIB:.1f} GiB left")
    compiled = ["--compile", "off", "--quiet"]
    code = bench.start("huge", "pictures", *bench.options(bench.huge, 1), *compiled, limit=limit).wait(300)
    said = bench.said("huge").strip()
    print(f"exit code {code}: {said}")
    found = re.search(r"(--batch-size|--micro-batch) (\d+) would probably fit", said)
    fits = None
    if found is not None:
        options = [*bench.options(bench.huge, 1), *compiled, found[1], found[2]]  # of two the last counts
        fits = bench.start("fits", "pictures", *options, limit=limit).wait(300)
        print(f"with {found[1]} {found[2]}: exit code {fits} {bench.said('fits').strip()[-1000:]}")
    del taken
    return {
        "batch": bench.huge,
        "exit_code": code,
        "lines": len(said.splitlines()),
        "message": said[-1000:],
        "suggested": f"{found[1]} {found[2]}" if found else None,
        "exit_code_with_the_suggested": fits,
        "as_promised": code == 1 and len(said.splitlines()) == 1 and fits == 0,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="an empty folder; DIR/gpu.json is the result")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--stem", default="small", choices=["small", "large"])
    parser.add_argument("--compile-twice", action="store_true")
    parser.add_argument("--parts", nargs="+", choices=["off", "memory", "on"], default=["off", "memory", "on"])
    parser.add_argument("--seconds", type=float, default=300, help="leave out what is not needed beyond this time")
    given = parser.parse_args()
    bench = Bench(given.output.resolve(), given.device, given.stem)
    begun = time.monotonic()
    gpu = bench.kind == "cuda"
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name(given.device) if gpu else "cpu",
        "torch": torch.__version__,
        "python": sys.version.split()[0],
    }
    pictures(bench.folder / "pictures", max(bench.n_images, bench.huge))
    try:
        for part in given.parts:
            started = time.monotonic()
            if part == "memory":
                result[part] = out_of_memory(bench)
            else:
                result[part] = kill_and_resume(bench, part, begun + given.seconds - 25, given.compile_twice)
            result[part]["seconds"] = round(time.monotonic() - started, 1)
            (bench.folder / "gpu.json").write_text(json.dumps(result, indent=2) + "\n")  # what there is, if cut short
    finally:
        bench.stop_all()
    result["seconds"] = round(time.monotonic() - begun, 1)
    text = json.dumps(result, indent=2)
    (bench.folder / "gpu.json").write_text(text + "\n")
    print(text)
    return 0 if all(result[part]["as_promised"] for part in given.parts) else 1


if __name__ == "__main__":
    sys.exit(main())
