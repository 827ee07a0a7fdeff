"""STL-10 as its publisher ships it: raw pixels, each channel column by column, and labels from 1."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO

import numpy as np
from numpy.typing import NDArray

from concurl.errors import UserError

# Opens the named files, each once its size is known to lie between the two; in the order an archive has them.
Files = Callable[[Mapping[str, tuple[int, int]]], Iterator[tuple[str, IO[bytes]]]]

CLASSES = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")
RECORDS = {"train": 5_000, "test": 8_000, "unlabelled": 100_000}
_PIXEL_FILES = {"train": "train_X.bin", "test": "test_X.bin", "unlabelled": "unlabeled_X.bin"}
_LABEL_FILES = {"train": "train_y.bin", "test": "test_y.bin"}
_CHUNK = 1_000  # the unlabelled part is 2.8 GB: turning it over in one piece would take twice that


def read_stl(splits: Sequence[str], files: Files) -> tuple[NDArray[np.uint8], NDArray[np.int64], list[str]]:
    """Images (N, 3, 96, 96), labels (-1: none) and names of the splits, in the publisher's order."""
    total = sum(RECORDS[split] for split in splits)
    images = np.empty((total, 3, 96, 96), np.uint8)
    labels = np.full(total, -1, np.int64)
    pixel_parts, label_parts = {}, {}  # file -> the part of images, of labels that it fills
    names: list[str] = []
    for split in splits:
        part = slice(len(names), len(names) + RECORDS[split])
        pixel_parts[_PIXEL_FILES[split]] = images[part]
        if split in _LABEL_FILES:
            label_parts[_LABEL_FILES[split]] = labels[part]
        names += [f"stl10/{split}/{i:05d}" for i in range(RECORDS[split])]

    sizes = {file: part.size for file, part in pixel_parts.items()}
    sizes |= {file: part.size for file, part in label_parts.items()}
    for file, stream in files({file: (size, size) for file, size in sizes.items()}):
        if file in label_parts:
            label_parts[file][:] = _read_labels(stream, file, sizes[file])
        else:
            _read_images(stream, file, pixel_parts[file])
    return images, labels, names


def _read_images(stream: IO[bytes], file: str, images: NDArray[np.uint8]) -> None:
    for first in range(0, len(images), _CHUNK):
        chunk = images[first : first + _CHUNK]
        columns = _read(stream, file, chunk.size).reshape(chunk.shape)  # (n, channel, x, y)
        chunk[:] = columns.transpose(0, 1, 3, 2)


def _read_labels(stream: IO[bytes], file: str, records: int) -> NDArray[np.int64]:
    labels = _read(stream, file, records).astype(np.int64)
    wrong = labels[(labels < 1) | (labels > len(CLASSES))]
    if len(wrong):
        raise UserError(f"{file}: label {wrong[0]} where 1 to {len(CLASSES)} is expected; download it again")
    return labels - 1


def _read(stream: IO[bytes], file: str, size: int) -> NDArray[np.uint8]:
    content = stream.read(size)
    if len(content) != size:
        raise EOFError(file)
    return np.frombuffer(content, np.uint8)
