"""`concurl fit` in a fraction of a second, into ./run, what is read of what it leaves, and the answer to wrong use."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from concurl.cli import main

TINY = (
    "--encoder tiny --image-size 16 --preset small --epochs 2 --batch-size 8 --projector-hidden 16 --projector-dim 8 "
    "--cluster-hidden 16 --embedding-dim 8 --projection-dim 4 --n-transforms 5 --queue-size 0 --quiet --no-report"
).split()


def make_photos(folder: Path, n: int = 24) -> Path:
    """Pictures of three colours, with some noise: every second one in a folder of its own."""
    (folder / "inner").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i in range(n):
        pixels = np.zeros((16, 16, 3)) + 200 * np.eye(3)[i % 3] + rng.integers(0, 50, (16, 16, 3))
        Image.fromarray(pixels.astype(np.uint8)).save(folder / ("inner" if i % 2 else "") / f"{i:02d}.png")
    return folder


def fit(photos: Path, *more: str) -> int:
    return main(["fit", str(photos), "-k", "3", "-o", "run", *TINY, *more])


def rows(path: Path | str) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8", errors="surrogateescape") as file:
        return list(csv.DictReader(file))


def told(capsys: pytest.CaptureFixture[str], *argv: str) -> pytest.CaptureResult[str]:
    """What a call that goes well says."""
    capsys.readouterr()
    assert main(list(argv)) == 0
    return capsys.readouterr()


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one line that answers wrong use; exit code 2."""
    capsys.readouterr()
    try:
        code = main(list(argv))
    except SystemExit as exit:  # argparse leaves this way
        code = int(exit.code or 0)
    captured = capsys.readouterr()
    assert code == 2
    assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    assert "Traceback" not in captured.err
    return captured.err
