"""STL-10 as its publisher ships it: raw pixels, each channel column by column, and labels from 1."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from concurl.data.archives import Files
from concurl.errors import UserError

CLASSES = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")
RECORDS = {"train": 5_000, "test": 8_000}


def read_stl(files: Files) -> tuple[NDArray[np.uint8], NDArray[np.int64], list[str]]:
    """Images (N, 3, 96, 96), labels from 0 and names of both splits, in the publisher's order."""
    images = np.empty((sum(RECORDS.values()), 3, 96, 96), np.uint8)
    labels = np.empty(len(images), np.int64)
    pixel_parts, label_parts = {}, {}  # file -> the part of images, of labels that it fills
    names: list[str] = []
    for split, records in RECORDS.items():
        part = slice(len(names), len(names) + records)
        pixel_parts[f"{split}_X.bin"] = images[part]
        label_parts[f"{split}_y.bin"] = labels[part]
        names += [f"stl10/{split}/{i:05d}" for i in range(records)]

    sizes = {file: part.size for parts in (pixel_parts, label_parts) for file, part in parts.items()}
    for file, stream in files({file: (size, size) for file, size in sizes.items()}):
        content = np.frombuffer(stream.read(sizes[file]), np.uint8)
        if len(content) != sizes[file]:
            raise EOFError(file)
        if file in label_parts:
            _check_labels(content, file)
            label_parts[file][:] = content.astype(np.int64) - 1
        else:
            columns = content.reshape(pixel_parts[file].shape)  # (n, channel, x, y)
            pixel_parts[file][:] = columns.transpose(0, 1, 3, 2)
    return images, labels, names


def _check_labels(labels: NDArray[np.uint8], file: str) -> None:
    wrong = labels[(labels < 1) | (labels > len(CLASSES))]
    if len(wrong):
        raise UserError(f"{file}: label {wrong[0]} where 1 to {len(CLASSES)} is expected; download it again")
