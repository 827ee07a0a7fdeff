"""STL-10's binary files, written pixel by pixel as the publisher describes them, and read back exactly."""

from __future__ import annotations

import tarfile

import numpy as np
import pytest

from concurl.data.benchmarks import load_benchmark
from concurl.data.publishers import stl
from concurl.errors import UserError

SMALL = {"train": 3, "test": 2, "unlabeled": 4}
LABELS = {"train": [1, 10, 4], "test": [7, 2], "unlabeled": []}


def make_images(split: str) -> np.ndarray:
    return np.random.default_rng(SMALL[split]).integers(0, 256, (SMALL[split], 3, 96, 96), np.uint8)


def column_by_column(images: np.ndarray) -> bytes:
    pixels = images.tolist()
    return bytes(channel[y][x] for image in pixels for channel in image for x in range(96) for y in range(96))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(stl, "RECORDS", SMALL)
    folder = tmp_path / "stl10_binary"
    folder.mkdir()
    for split, labels in LABELS.items():
        (folder / f"{split}_X.bin").write_bytes(column_by_column(make_images(split)))
        if labels:
            (folder / f"{split}_y.bin").write_bytes(bytes(labels))
    (folder / "class_names.txt").write_text("\n".join(stl.CLASSES) + "\n")
    return folder


def pack(folder):
    with tarfile.open(folder.parent / "stl10_binary.tar.gz", "w:gz") as archive:
        for path in sorted(folder.iterdir()):
            archive.add(path, f"./stl10_binary/{path.name}")
            path.unlink()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("name", "splits", "without_label"),
    [("stl10", ["train", "test"], 0), ("stl10-unlabelled", ["train", "test", "unlabeled"], 4)],
)
def test_pixels_and_labels_are_the_written_ones(folder, name, splits, without_label, packed, monkeypatch):
    monkeypatch.setattr(stl, "_CHUNK", 3)
    if packed:
        pack(folder)
    read = load_benchmark(name, folder.parent)
    assert (read.images.images == np.concatenate([make_images(split) for split in splits])).all()
    labels = [label - 1 for split in splits for label in LABELS[split]]
    assert read.labels.tolist() == labels + [-1] * without_label
    assert list(read.images.names) == [f"stl10/{split}/{i:05d}" for split in splits for i in range(SMALL[split])]


def test_official_classes_and_counts(folder, monkeypatch):
    assert tuple((folder / "class_names.txt").read_text().split()) == stl.CLASSES
    monkeypatch.undo()
    assert stl.RECORDS == {"train": 5_000, "test": 8_000, "unlabeled": 100_000}
    with pytest.raises(UserError, match=r"train_X\.bin: 82,944 bytes found, 138,240,000 expected"):
        load_benchmark("stl10", folder.parent)


def test_wrong_labels_and_sizes_are_named(folder):
    (folder / "test_y.bin").write_bytes(bytes([0, 5]))
    with pytest.raises(UserError, match=r"test_y\.bin: label 0 where 1 to 10"):
        load_benchmark("stl10", folder)
    (folder / "test_y.bin").write_bytes(bytes([5]))
    with pytest.raises(UserError, match=r"test_y\.bin: 1 bytes found, 2 expected"):
        load_benchmark("stl10", folder)
