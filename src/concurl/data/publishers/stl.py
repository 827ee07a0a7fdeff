"""STL-10 as its publisher ships it: raw pixels, each channel column by column, and labels from 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from concurl.data.publishers.archives import Files
from concurl.errors import UserError

CLASSES = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")
RECORDS = {"train": 5_000, "test": 8_000, "unlabeled": 100_000}
SETS = {"stl10": ("train", "test"), "stl10-unlabelled": ("train", "test", "unlabeled")}
_CHUNK = 1_000  # images: to turn all of the unlabelled 2.8 GB at once would take twice as much memory


def read_stl(splits: Sequence[str], files: Files) -> tuple[NDArray[np.uint8], NDArray[np.int64], list[str]]:
    """Images (N, 3, 96, 96), labels from 0 (-1: none) and names of the splits, in the publisher's order."""
    images = np.empty((sum(RECORDS[split] for split in splits), 3, 96, 96), np.uint8)
    labels = np.full(len(images), -1, np.int64)
    pixel_parts, label_parts = {}, {}  # file -> the part of images, of labels that it fills
    names: list[str] = []
    for split in splits:
        part = slice(len(names), len(names) + RECORDS[split])
        pixel_parts[f"{split}_X.bin"] = images[part]
        if split != "unlabeled":
            label_parts[f"{split}_y.bin"] = labels[part]
        names += [f"stl10/{split}/{i:05d}" for i in range(RECORDS[split])]

    sizes = {file: part.size for parts in (pixel_parts, label_parts) for file, part in parts.items()}
    for file, stream in files({file: (size, size) for file, size in sizes.items()}):
        if file in label_parts:
            content = np.frombuffer(stream.read(), np.uint8)
            _check_labels(content, file)
            label_parts[file][:] = content.astype(np.int64) - 1
        else:
            pixels = pixel_parts[file]
            for first in range(0, len(pixels), _CHUNK):
                chunk = pixels[first : first + _CHUNK]
                columns = np.frombuffer(stream.read(chunk.size), np.uint8).reshape(chunk.shape)  # (n, channel, x, y)
                chunk[:] = columns.transpose(0, 1, 3, 2)
    return images, labels, names


def _check_labels(labels: NDArray[np.uint8], file: str) -> None:
    wrong = labels[(labels < 1) | (labels > len(CLASSES))]
    if len(wrong):
        raise UserError(f"{file}: label {wrong[0]} where 1 to {len(CLASSES)} is expected; download it again")
