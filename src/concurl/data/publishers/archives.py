"""A publisher's archive, unpacked or not: found, checked by the sizes of its files, and read without unpacking it."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from concurl.errors import UserError

# Opens the named files, each once its size is known to lie between the two; in the order an archive has them.
Files = Callable[[Mapping[str, tuple[int, int]]], Iterator[tuple[str, IO[bytes]]]]


@dataclass(frozen=True)
class Archive:
    """One of the forms in which a publisher offers a set."""

    folder: str  # that it unpacks to
    name: str
    size: int
    mark: str  # a file by which the unpacked folder is known, whatever it is called
    pickled: bool = False


def places(archives: Sequence[Archive], directory: Path) -> list[tuple[Path, Path, Archive]]:
    """Where a set may be: the file to look for, and the folder or archive to read then. Unpacked before packed."""
    unpacked = [(folder / a.mark, folder, a) for a in archives for folder in (directory / a.folder, directory)]
    return unpacked + [(directory / a.name, directory / a.name, a) for a in archives]


def open_files(path: Path, archive: Archive, sizes: Mapping[str, tuple[int, int]]) -> Iterator[tuple[str, IO[bytes]]]:
    """The files of `sizes`, from the folder or straight from the archive."""
    if path.is_dir():
        for file in sizes:
            if not (path / file).is_file():
                raise UserError(f"{file} is missing; unpack {archive.name} again, whole")
            _check_size(file, (path / file).stat().st_size, sizes[file])
            with open(path / file, "rb") as stream:
                yield file, stream
        return
    wanted = {f"{archive.folder}/{file}": file for file in sizes}
    with tarfile.open(path) as tar:
        # One pass, as a .tar.gz cannot jump; only plain files with exactly the official names are looked at.
        for member in tar:
            name = member.name.removeprefix("./")
            if member.isfile() and name in wanted:
                file = wanted.pop(name)
                _check_size(file, member.size, sizes[file])
                content = tar.extractfile(member)
                assert content is not None  # as it is a plain file
                yield file, content
            if not wanted:
                return
    raise UserError(f"{', '.join(wanted)} missing in the archive; download it again")


def unreadable(path: Path, archive: Archive, error: Exception) -> UserError:
    """What to tell the user when reading the archive, or its folder, has failed."""
    if isinstance(error, OSError) and error.strerror:
        return UserError(f"{path}: cannot be read ({error.strerror}); check the file and its permissions")
    size = f"{path.stat().st_size:,} bytes found, {archive.size:,} expected in the official archive"
    return UserError(f"{path}: cut off or damaged ({size}); download it again")


def _check_size(file: str, found: int, expected: tuple[int, int]) -> None:
    least, most = expected
    if not least <= found <= most:
        amount = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        raise UserError(f"{file}: {found:,} bytes found, {amount} expected; download or unpack it again")
