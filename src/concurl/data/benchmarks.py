"""The benchmarks by name: where to download them, where their files are, and at which size they are read.

Of each set those images are taken that the field clusters: train and test, or train alone where that is ImageNet's.
stl10-unlabelled has STL-10's 100,000 unlabelled images besides; scores are over the 13,000 with labels.
What the files hold is known to their readers: cifar.py, stl.py, imagenet.py and digits.py.
"""

from __future__ import annotations

import os
import tarfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from concurl.data.imageset import ImageSet, Opened
from concurl.data.publishers import digits, imagenet, stl
from concurl.data.publishers.archives import Archive, open_files, places, unreadable
from concurl.data.publishers.cifar import CIFARS, read_cifar
from concurl.data.storage.reader import read_files
from concurl.errors import UserError
from concurl.progress import Stages, silent


@dataclass(frozen=True)
class Benchmark:
    """What is known of a set before its files are read."""

    image_size: int  # the default, in pixels
    download: str = ""  # what, and from where
    archives: Sequence[Archive] = ()  # in order of preference; none where the set is a folder of images


_CIFAR_10 = (
    Archive("cifar-10-batches-bin", "cifar-10-binary.tar.gz", 170_052_171, "test_batch.bin"),
    Archive("cifar-10-batches-py", "cifar-10-python.tar.gz", 170_498_071, "test_batch", pickled=True),
)
_CIFAR_100 = (
    Archive("cifar-100-binary", "cifar-100-binary.tar.gz", 168_513_733, "train.bin"),
    Archive("cifar-100-python", "cifar-100-python.tar.gz", 169_001_437, "train", pickled=True),
)
_STL_10 = (Archive("stl10_binary", "stl10_binary.tar.gz", 2_640_397_119, "train_X.bin"),)

_TORONTO = "from the CIFAR page of the University of Toronto (https://www.cs.toronto.edu/~kriz/cifar.html)"
_GET_CIFAR_10 = f"cifar-10-binary.tar.gz (or cifar-10-python.tar.gz) {_TORONTO}"
_GET_CIFAR_100 = f"cifar-100-binary.tar.gz (or cifar-100-python.tar.gz) {_TORONTO}"
_GET_STL_10 = "stl10_binary.tar.gz from Stanford's STL-10 page (https://cs.stanford.edu/~acoates/stl10/)"
_GET_IMAGENET = (
    "ILSVRC2012_img_train.tar from the ImageNet page (https://image-net.org/download.php), unpack it so that "
    "every class is a folder train/<wnid>,"
)
_GET_TINY = "tiny-imagenet-200.zip from Stanford's CS231n (http://cs231n.stanford.edu), unpack it"

BENCHMARKS: Mapping[str, Benchmark] = {
    "digits": Benchmark(12),
    "cifar10": Benchmark(32, _GET_CIFAR_10, _CIFAR_10),
    "cifar100": Benchmark(32, _GET_CIFAR_100, _CIFAR_100),
    "cifar100-20": Benchmark(32, _GET_CIFAR_100, _CIFAR_100),
    "stl10": Benchmark(96, _GET_STL_10, _STL_10),
    "stl10-unlabelled": Benchmark(96, _GET_STL_10, _STL_10),
    # ImageNet's are kept at 256 pixels, so that views of 224 have something to choose from.
    "imagenet10": Benchmark(256, _GET_IMAGENET),
    "imagenet-dogs": Benchmark(256, _GET_IMAGENET),
    "tiny-imagenet": Benchmark(64, _GET_TINY),
}


def data_folder(given: Path | None) -> Path:
    """Where the publishers' files are."""
    return Path(given or os.environ.get("CONCURL_DATA") or "data").expanduser()


def load_benchmark(
    name: str,
    data_dir: Path | None = None,
    *,
    image_size: int | None = None,
    limit: int | None = None,
    progress: Stages = silent,
) -> Opened:
    """The benchmark `name`, read from its publisher's files in `data_dir` (else $CONCURL_DATA, else ./data).

    limit: the first so many of a fixed shuffle, so that a small choice mixes the classes and lies within every larger
    one. progress is told ("read" or "resize", done, total) where files are decoded or images are resized.

    >>> load_benchmark("digits", limit=500).images.images.shape
    (500, 3, 12, 12)
    """
    size = image_size or BENCHMARKS[name].image_size
    directory = data_folder(data_dir)
    if name == "digits" or BENCHMARKS[name].archives:
        return _from_arrays(name, directory, size, limit, progress)
    return _from_folder(name, directory, size, limit, progress)


def _from_arrays(name: str, directory: Path, size: int, limit: int | None, progress: Stages) -> Opened:
    if name == "digits":
        classes: Sequence[str] = digits.CLASSES
        images, labels, names = digits.read_digits()
    else:
        path, archive = _find_archive(name, directory)
        files = partial(open_files, path, archive)
        try:
            if name in stl.SETS:
                classes = stl.CLASSES
                images, labels, names = stl.read_stl(stl.SETS[name], files)
            else:
                classes = CIFARS[name].classes
                images, labels, names = read_cifar(CIFARS[name], files, pickled=archive.pickled)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
        except (EOFError, OSError, tarfile.TarError, zlib.error) as error:
            raise unreadable(path, archive, error) from error
    if limit is not None:
        chosen = _draw(len(images), limit)
        images, labels, names = images[chosen], labels[chosen], [names[i] for i in chosen]
    if images.shape[-1] != size:
        images = _resized(images, size, progress)
    return Opened(ImageSet(images, names), labels, classes)


def _from_folder(name: str, directory: Path, size: int, limit: int | None, progress: Stages) -> Opened:
    if name == "tiny-imagenet":
        root = _find_folder(name, directory, imagenet.TINY_FOLDERS, imagenet.holds_tiny, "wnids.txt")
        files, classes = imagenet.list_tiny(root)
    else:
        holds = partial(imagenet.holds_subset, name=name)
        root = _find_folder(name, directory, imagenet.TRAIN_FOLDERS, holds, "<wnid>")
        files, classes = imagenet.list_subset(root, name)
    if limit is not None:  # before decoding: it is what takes the time
        files = [files[i] for i in _draw(len(files), limit)]
    # What comes back is sorted by name and without the unreadable: labels are matched by name.
    images = read_files([path for path, _ in files], size, root=root, progress=progress)
    labels = {path.relative_to(root).as_posix(): label for path, label in files}
    return Opened(images, np.array([labels[name] for name in images.names], np.int64), classes)


def _find_archive(name: str, directory: Path) -> tuple[Path, Archive]:
    possible = places(BENCHMARKS[name].archives, directory)
    for mark, path, archive in possible:
        if mark.is_file():
            return path, archive
    raise _missing(name, directory, [mark for mark, *_ in possible])


def _find_folder(name: str, directory: Path, folders: Sequence[str], holds: Callable[[Path], bool], mark: str) -> Path:
    for folder in folders:
        if holds(directory / folder):
            return directory / folder
    raise _missing(name, directory, [directory / folder / mark for folder in folders])


def _missing(name: str, directory: Path, looked: Sequence[Path]) -> UserError:
    return UserError(
        f"{name} was not found: download {BENCHMARKS[name].download} and put it into {directory.absolute()} "
        f"(or name another folder with --data-dir or $CONCURL_DATA); looked for {', '.join(map(str, looked))}"
    )


def _draw(total: int, limit: int) -> NDArray[np.int64]:
    """The first `limit` of a fixed shuffle. Raw bits, as numpy keeps those the same in every version."""
    order = np.argsort(np.random.PCG64(0).random_raw(total), kind="stable")
    return order[:limit].astype(np.int64)


def _resized(images: NDArray[np.uint8], size: int, progress: Stages) -> NDArray[np.uint8]:
    resized = np.empty((len(images), 3, size, size), np.uint8)
    for i, (target, image) in enumerate(zip(resized, images, strict=True)):
        picture = Image.fromarray(image.transpose(1, 2, 0))
        target[:] = np.asarray(picture.resize((size, size), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
        progress("resize", i + 1, len(images))
    return resized
