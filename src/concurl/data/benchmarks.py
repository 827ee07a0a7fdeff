"""The benchmarks by name: where their official files lie, which images the protocol takes, at which size.

What the files hold is the readers' business: cifar.py, stl.py, imagenet.py, digits.py.
"""

from __future__ import annotations

import difflib
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from concurl.data import digits, imagenet, stl
from concurl.data.audit import Progress
from concurl.data.cifar import CIFARS, read_cifar
from concurl.data.imageset import ImageSet
from concurl.errors import UserError


@dataclass(frozen=True)
class Benchmark:
    """Images and, apart from them, the labels that only the evaluation may see."""

    images: ImageSet
    labels: NDArray[np.int64]  # -1 where the publisher gives none
    classes: Sequence[str]
    protocol: str  # "train+test, 60,000 images, 32x32"


@dataclass(frozen=True)
class Published:
    """One line of the list of benchmarks."""

    description: str
    n_classes: int
    image_size: int  # the default, in pixels
    splits: Sequence[str]
    protocol: str  # the splits that the field clusters, and that split=None takes


_TRAIN_TEST = ("train", "test")
_STL_SPLITS = ("train", "test", "unlabelled")

BENCHMARKS: Mapping[str, Published] = {
    "digits": Published("1,797 handwritten digits, part of scikit-learn", 10, 12, ("all",), "all"),
    "cifar10": Published("60,000 small photographs", 10, 32, _TRAIN_TEST, "train+test"),
    "cifar100": Published("CIFAR-100 by its 100 classes", 100, 32, _TRAIN_TEST, "train+test"),
    "cifar100-20": Published("CIFAR-100 by its 20 superclasses", 20, 32, _TRAIN_TEST, "train+test"),
    "stl10": Published("13,000 photographs, and 100,000 unlabelled", 10, 96, _STL_SPLITS, "train+test"),
    # ImageNet's are kept at 256 pixels, so that views of 224 have something to choose from.
    "imagenet10": Published("10 classes of ImageNet", 10, 256, ("train",), "train"),
    "imagenet-dogs": Published("15 breeds of dogs from ImageNet", 15, 256, ("train",), "train"),
    "tiny-imagenet": Published("200 classes of ImageNet, 64x64", 200, 64, ("train", "val"), "train"),
}

_TORONTO = "from the CIFAR page of the University of Toronto (https://www.cs.toronto.edu/~kriz/cifar.html)"
_IMAGENET = (
    "ILSVRC2012_img_train.tar from the ImageNet page (https://image-net.org/download.php), unpack it so that "
    "every class is a folder train/<wnid>,"
)
_SOURCES = {
    "cifar10": f"cifar-10-binary.tar.gz (or cifar-10-python.tar.gz) {_TORONTO}",
    "cifar100": f"cifar-100-binary.tar.gz (or cifar-100-python.tar.gz) {_TORONTO}",
    "cifar100-20": f"cifar-100-binary.tar.gz (or cifar-100-python.tar.gz) {_TORONTO}",
    "stl10": "stl10_binary.tar.gz from Stanford's STL-10 page (https://cs.stanford.edu/~acoates/stl10/)",
    "imagenet10": _IMAGENET,
    "imagenet-dogs": _IMAGENET,
    "tiny-imagenet": "tiny-imagenet-200.zip from Stanford's CS231n (http://cs231n.stanford.edu), unpack it",
}


@dataclass(frozen=True)
class Form:
    """One of the forms in which a publisher offers a set."""

    folder: str
    archive: str
    archive_size: int
    mark: str  # a file by which the unpacked folder is known, whatever it is called
    pickled: bool = False


_CIFAR_100_FORMS = (
    Form("cifar-100-binary", "cifar-100-binary.tar.gz", 168_513_733, "train.bin"),
    Form("cifar-100-python", "cifar-100-python.tar.gz", 169_001_437, "train", pickled=True),
)
_FORMS: Mapping[str, Sequence[Form]] = {
    "cifar10": (
        Form("cifar-10-batches-bin", "cifar-10-binary.tar.gz", 170_052_171, "test_batch.bin"),
        Form("cifar-10-batches-py", "cifar-10-python.tar.gz", 170_498_071, "test_batch", pickled=True),
    ),
    "cifar100": _CIFAR_100_FORMS,
    "cifar100-20": _CIFAR_100_FORMS,
    "stl10": (Form("stl10_binary", "stl10_binary.tar.gz", 2_640_397_119, "train_X.bin"),),
}


def data_folder(given: Path | None) -> Path:
    """Where the publishers' files are."""
    return Path(given or os.environ.get("CONCURL_DATA") or "data").expanduser()


def load_benchmark(
    name: str,
    data_dir: Path | None = None,
    *,
    split: str | None = None,
    image_size: int | None = None,
    limit: int | None = None,
    progress: Progress | None = None,
) -> Benchmark:
    """The benchmark `name`, read from its publisher's files in `data_dir` (else $CONCURL_DATA, else ./data).

    split: None for the field's protocol, or splits joined by "+". limit: the first so many of a fixed
    shuffle, so that a small choice mixes the classes and lies within every larger one. progress is told
    ("pack" or "resize", done, total) where files are decoded or images are resized.

    >>> load_benchmark("digits", limit=500).protocol
    'all, 500 of 1,797 images, 12x12'
    """
    published = BENCHMARKS.get(name)
    if published is None:
        near = difflib.get_close_matches(name, BENCHMARKS, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UserError(f"unknown benchmark {name!r}: {hint}known are {', '.join(BENCHMARKS)}")
    splits = _chosen_splits(name, published, split)
    size = published.image_size if image_size is None else image_size
    for option, value, low in (("image_size", size, 8), ("limit", 1 if limit is None else limit, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise UserError(f"{option}={value!r}: a whole number of at least {low} is needed")
    directory = data_folder(data_dir)

    read = _from_folder if name in (*imagenet.SUBSETS, "tiny-imagenet") else _from_arrays
    images, labels, classes, total = read(name, directory, splits, size, limit, progress)
    count = f"{len(images):,}" if len(images) == total else f"{len(images):,} of {total:,}"
    return Benchmark(images, labels, classes, f"{'+'.join(splits)}, {count} images, {size}x{size}")


def _chosen_splits(name: str, published: Published, split: str | None) -> list[str]:
    asked = (published.protocol if split is None else split).replace("unlabeled", "unlabelled").split("+")
    for part in asked:
        if part not in published.splits:
            raise UserError(
                f"split={split!r}: {name} has {', '.join(published.splits)}, or several joined by +; "
                f"leave it out for the field's protocol, {published.protocol}"
            )
    return [part for part in published.splits if part in asked]


_Read = tuple[ImageSet, NDArray[np.int64], Sequence[str], int]


def _from_arrays(
    name: str, directory: Path, splits: Sequence[str], size: int, limit: int | None, progress: Progress | None
) -> _Read:
    if name == "digits":
        classes: Sequence[str] = digits.CLASSES
        images, labels, names = digits.read_digits()
    else:
        path, form = _find_form(name, directory)
        files = partial(_open_files, path, form)
        try:
            if name == "stl10":
                classes = stl.CLASSES
                images, labels, names = stl.read_stl(splits, files)
            else:
                classes = CIFARS[name].classes
                images, labels, names = read_cifar(CIFARS[name], splits, files, pickled=form.pickled)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
        except (EOFError, OSError, tarfile.TarError, zlib.error) as error:
            raise UserError(_unreadable(path, form, error)) from error
    total = len(images)
    if limit is not None:
        chosen = _draw(total, limit)
        images, labels, names = images[chosen], labels[chosen], [names[i] for i in chosen]
    if images.shape[-1] != size:
        images = _resized(images, size, progress)
    return ImageSet(images, names), labels, classes, total


def _from_folder(
    name: str, directory: Path, splits: Sequence[str], size: int, limit: int | None, progress: Progress | None
) -> _Read:
    from concurl.data.sources import read_files

    if name == "tiny-imagenet":
        root = _find_folder(name, directory, imagenet.TINY_FOLDERS, imagenet.holds_tiny, "wnids.txt")
        files, classes = imagenet.list_tiny(root, splits)
    else:
        holds = partial(imagenet.holds_subset, name=name)
        root = _find_folder(name, directory, imagenet.TRAIN_FOLDERS, holds, "<wnid>")
        files, classes = imagenet.list_subset(root, name)
    total = len(files)
    if limit is not None:  # before decoding: it is what takes the time
        files = [files[i] for i in _draw(total, limit)]
    # What comes back is sorted by name and without the unreadable: labels are matched by name.
    images = read_files([path for path, _ in files], size, root=root, progress=progress)
    labels = {path.relative_to(root).as_posix(): label for path, label in files}
    return images, np.array([labels[name] for name in images.names], np.int64), classes, total


def _find_form(name: str, directory: Path) -> tuple[Path, Form]:
    """The set's folder or archive: unpacked before packed, binary before pickle."""
    forms = _FORMS[name]
    looked = []
    for form in forms:
        for folder in (directory / form.folder, directory):
            looked.append(folder / form.mark)
            if looked[-1].is_file():
                return folder, form
    for form in forms:
        looked.append(directory / form.archive)
        if looked[-1].is_file():
            return looked[-1], form
    raise _missing(name, directory, looked)


def _find_folder(name: str, directory: Path, folders: Sequence[str], holds: Callable[[Path], bool], mark: str) -> Path:
    for folder in folders:
        if holds(directory / folder):
            return directory / folder
    raise _missing(name, directory, [directory / folder / mark for folder in folders])


def _missing(name: str, directory: Path, looked: Sequence[Path]) -> UserError:
    return UserError(
        f"{name} was not found: download {_SOURCES[name]} and put it into {directory.absolute()} "
        f"(or name another folder with --data-dir or $CONCURL_DATA); looked for {', '.join(map(str, looked))}"
    )


def _open_files(path: Path, form: Form, sizes: Mapping[str, tuple[int, int]]) -> Iterator[tuple[str, IO[bytes]]]:
    """The files of `sizes`, from the folder or straight from the archive: nothing is unpacked to disk."""
    if path.is_dir():
        for file in sizes:
            if not (path / file).is_file():
                raise UserError(f"{file} is missing; unpack {form.archive} again, whole")
            _check_size(file, (path / file).stat().st_size, sizes[file])
            with open(path / file, "rb") as stream:
                yield file, stream
        return
    wanted = {f"{form.folder}/{file}": file for file in sizes}
    with tarfile.open(path) as archive:
        # One pass, as a .tar.gz cannot jump; only plain files with exactly the official names are looked at.
        for member in archive:
            name = member.name.removeprefix("./")
            if member.isfile() and name in wanted:
                file = wanted.pop(name)
                _check_size(file, member.size, sizes[file])
                content = archive.extractfile(member)
                assert content is not None  # as it is a plain file
                yield file, content
            if not wanted:
                return
    raise UserError(f"{', '.join(wanted)} missing in the archive; download it again")


def _check_size(file: str, found: int, expected: tuple[int, int]) -> None:
    least, most = expected
    if not least <= found <= most:
        amount = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        raise UserError(f"{file}: {found:,} bytes found, {amount} expected; download or unpack it again")


def _unreadable(path: Path, form: Form, error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{path}: cannot be read ({error.strerror}); check the file and its permissions"
    size = f"{path.stat().st_size:,} bytes found, {form.archive_size:,} expected in the official archive"
    return f"{path}: cut off or damaged ({size}); download it again"


def _draw(total: int, limit: int) -> NDArray[np.int64]:
    """The first `limit` of a fixed shuffle. Raw bits, as numpy keeps those the same in every version."""
    order = np.argsort(np.random.PCG64(0).random_raw(total), kind="stable")
    return order[:limit].astype(np.int64)


def _resized(images: NDArray[np.uint8], size: int, progress: Progress | None) -> NDArray[np.uint8]:
    resized = np.empty((len(images), 3, size, size), np.uint8)
    for i, (target, image) in enumerate(zip(resized, images, strict=True)):
        picture = Image.fromarray(image.transpose(1, 2, 0))
        target[:] = np.asarray(picture.resize((size, size), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
        if progress is not None:
            progress("resize", i + 1, len(images))
    return resized
