"""CIFAR-10 and CIFAR-100 as their publisher ships them: binary records, or the pickles of Python 2."""

from __future__ import annotations

import codecs
import copyreg
import io
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from concurl.data.publishers.archives import Files
from concurl.errors import UserError

PIXELS = 3 * 32 * 32
_BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
RECORDS = dict.fromkeys((*_BATCHES, "test_batch", "test"), 10_000) | {"train": 50_000}
_SPLITS_10 = {"train": _BATCHES, "test": ("test_batch",)}
_SPLITS_100 = {"train": ("train",), "test": ("test",)}


@dataclass(frozen=True)
class Cifar:
    """What tells one CIFAR set from another."""

    title: str  # first part of the images' names: the same for both labellings of CIFAR-100
    splits: Mapping[str, Sequence[str]]  # split -> its files, without the binary version's .bin
    columns: Sequence[str]  # the label bytes of a binary record, which are also the pickle's keys
    column: str
    classes: Sequence[str]


def read_cifar(cifar: Cifar, files: Files, *, pickled: bool) -> tuple[NDArray[np.uint8], NDArray[np.int64], list[str]]:
    """Images (N, 3, 32, 32), labels and names of both splits, in the publisher's order."""
    suffix = "" if pickled else ".bin"
    counts = {split: sum(RECORDS[stem] for stem in stems) for split, stems in cifar.splits.items()}
    names = [f"{cifar.title}/{split}/{i:05d}" for split, count in counts.items() for i in range(count)]
    images = np.empty((len(names), 3, 32, 32), np.uint8)
    labels = np.empty(len(names), np.int64)
    records = {stem + suffix: RECORDS[stem] for stems in cifar.splits.values() for stem in stems}
    starts = dict(zip(records, accumulate(records.values(), initial=0), strict=False))

    sizes = {file: _size(count, len(cifar.columns), pickled) for file, count in records.items()}
    for file, stream in files(sizes):
        pixels, marks = _read_pickle(stream, file, records[file], cifar) if pickled else _read_binary(stream, cifar)
        wrong = marks[(marks < 0) | (marks >= len(cifar.classes))]
        if len(wrong):
            raise UserError(
                f"{file}: label {wrong[0]} where 0 to {len(cifar.classes) - 1} is expected: "
                "damaged, or the file of another set; download it again"
            )
        part = slice(starts[file], starts[file] + records[file])
        images[part] = pixels.reshape(-1, 3, 32, 32)
        labels[part] = marks
    return images, labels, names


def _size(records: int, columns: int, pickled: bool) -> tuple[int, int]:
    if not pickled:
        return (records * (columns + PIXELS),) * 2
    # Labels and file names add a little; pickled again by Python 3, the pixels grow by half, as UTF-8.
    return records * PIXELS, records * PIXELS * 2 + 2**20


def _read_binary(stream: IO[bytes], cifar: Cifar) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    width = len(cifar.columns)
    rows = np.frombuffer(stream.read(), np.uint8).reshape(-1, width + PIXELS)
    return rows[:, width:], rows[:, cifar.columns.index(cifar.column)].astype(np.int64)


def _read_pickle(
    stream: IO[bytes], file: str, records: int, cifar: Cifar
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    content = stream.read()  # first, so that a broken archive is told from a broken pickle
    copyreg.clear_extension_cache()  # what another pickle put there is handed out without a question to find_class
    try:
        batch = OfficialUnpickler(io.BytesIO(content), encoding="bytes").load()
        batch = {key.decode() if isinstance(key, bytes) else key: value for key, value in batch.items()}
        pixels, marks = batch["data"].pixels(), np.asarray(batch[cifar.column], np.int64)
    except UserError as error:
        raise UserError(f"{file}: {error}") from error
    except Exception as error:  # a damaged pickle can fail in any way it likes
        raise UserError(
            f"{file}: {len(content):,} bytes found, expected a whole pickle with data and {cifar.column} "
            f"({type(error).__name__}: {error}); download it again"
        ) from error
    if pixels.shape != (records, PIXELS) or marks.shape != (records,):
        raise UserError(
            f"{file}: data {pixels.shape} and {cifar.column} {marks.shape} found, "
            f"{(records, PIXELS)} and {(records,)} expected; download it again"
        )
    return pixels, marks


class _Dtype:
    """Stands in for numpy.dtype. Numpy's own believes the flags that a pickle sets, even forged ones."""

    def __init__(self, code: str | bytes, *_: object) -> None:
        self.code = code

    def __setstate__(self, state: object) -> None:
        """Byte order and the like: without meaning for single bytes."""


class _Array:
    """Stands in for numpy.ndarray, and takes nothing but plain bytes for its content."""

    state: tuple[Any, ...] = ()

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def pixels(self) -> NDArray[np.uint8]:
        _, shape, dtype, column_major, content = self.state
        if dtype.code not in ("u1", b"u1"):
            raise TypeError(f"an array of {dtype.code!r} in place of bytes")
        return np.frombuffer(content, np.uint8).reshape(shape, order="F" if column_major else "C")


_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): object,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): codecs.encode,  # how Python 3 writes bytes in protocol 2
    ("codecs", "encode"): codecs.encode,
}


class OfficialUnpickler(pickle.Unpickler):
    """Knows what the official files hold, an array among lists and text, and refuses all else."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise UserError(
                f"refused, as the pickle asks for {module}.{name}, which no official CIFAR file does: "
                "delete it and download the set from its publisher"
            ) from None


_CLASSES_10 = "airplane automobile bird cat deer dog frog horse ship truck"
_CLASSES_20 = """
aquatic_mammals fish flowers food_containers fruit_and_vegetables household_electrical_devices
household_furniture insects large_carnivores large_man-made_outdoor_things large_natural_outdoor_scenes
large_omnivores_and_herbivores medium_mammals non-insect_invertebrates people reptiles small_mammals trees
vehicles_1 vehicles_2
"""
_CLASSES_100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
_COLUMNS_100 = ("coarse_labels", "fine_labels")

CIFARS = {
    "cifar10": Cifar("cifar10", _SPLITS_10, ("labels",), "labels", tuple(_CLASSES_10.split())),
    "cifar100": Cifar("cifar100", _SPLITS_100, _COLUMNS_100, "fine_labels", tuple(_CLASSES_100.split())),
    "cifar100-20": Cifar("cifar100", _SPLITS_100, _COLUMNS_100, "coarse_labels", tuple(_CLASSES_20.split())),
}
