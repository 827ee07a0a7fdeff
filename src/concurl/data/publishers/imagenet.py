"""ImageNet's subsets and Tiny-ImageNet: which files of the publisher's folders, and which label each has."""

from __future__ import annotations

import re
from pathlib import Path

from concurl.errors import UserError

SUFFIXES = {".jpeg", ".jpg", ".png"}  # the official files all end in .JPEG; repacked copies do not
TRAIN_FOLDERS = ("train", "ILSVRC2012/train", "ILSVRC/Data/CLS-LOC/train", "")
TINY_FOLDERS = ("tiny-imagenet-200", "")

# The two lists are the field's, after Chang et al. 2017.
SUBSETS = {
    "imagenet10": {
        "n02056570": "king penguin",
        "n02085936": "Maltese dog",
        "n02128757": "snow leopard",
        "n02690373": "airliner",
        "n02692877": "airship",
        "n03095699": "container ship",
        "n04254680": "soccer ball",
        "n04285008": "sports car",
        "n04467665": "trailer truck",
        "n07747607": "orange",
    },
    "imagenet-dogs": {
        "n02085936": "Maltese dog",
        "n02086646": "Blenheim spaniel",
        "n02088238": "basset",
        "n02091467": "Norwegian elkhound",
        "n02097130": "giant schnauzer",
        "n02099601": "golden retriever",
        "n02101388": "Brittany spaniel",
        "n02101556": "clumber",
        "n02102177": "Welsh springer spaniel",
        "n02105056": "groenendael",
        "n02105412": "kelpie",
        "n02105855": "Shetland sheepdog",
        "n02107142": "Doberman",
        "n02110958": "pug",
        "n02112137": "chow",
    },
}


def holds_subset(folder: Path, name: str) -> bool:
    """Is this a train folder with at least one of the classes?"""
    return any((folder / wnid).is_dir() for wnid in SUBSETS[name])


def list_subset(folder: Path, name: str) -> tuple[list[tuple[Path, int]], list[str]]:
    """(file, label) of every image of the subset in ImageNet's train folder, and the classes."""
    wnids = SUBSETS[name]
    files = _list_classes({wnid: folder / wnid for wnid in wnids})
    return files, [f"{wnid} {words}" for wnid, words in wnids.items()]


def holds_tiny(folder: Path) -> bool:
    """Is this Tiny-ImageNet, unpacked?"""
    return (folder / "wnids.txt").is_file()


def list_tiny(folder: Path) -> tuple[list[tuple[Path, int]], list[str]]:
    """(file, label) of every training image of Tiny-ImageNet, and the classes in wnids.txt's order."""
    wnids = [line.strip() for line in _lines(folder / "wnids.txt") if line.strip()]
    if len(wnids) != 200 or not all(re.fullmatch(r"n\d{8}", wnid) for wnid in wnids):
        raise UserError(f"{folder}/wnids.txt: {len(wnids)} lines found, 200 such as n01443537 expected")
    files = _list_classes({wnid: folder / "train" / wnid / "images" for wnid in wnids})
    rows = [line.split("\t") for line in _lines(folder / "words.txt")] if (folder / "words.txt").is_file() else []
    words = {row[0]: row[1].strip() for row in rows if len(row) > 1}
    return files, [f"{wnid} {words[wnid]}" if wnid in words else wnid for wnid in wnids]


def _list_classes(folders: dict[str, Path]) -> list[tuple[Path, int]]:
    files = []
    for label, (wnid, folder) in enumerate(folders.items()):
        found = _images(folder) if folder.is_dir() else []
        if not found:
            missing = [wnid for wnid, folder in folders.items() if not folder.is_dir()] or [wnid]
            raise UserError(
                f"no images of {len(missing)} of the {len(folders)} classes ({', '.join(missing[:20])}): "
                f"unpack ImageNet's file for each into a folder such as {folders[missing[0]]}"
            )
        files += [(path, label) for path in found]
    return files


def _images(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    except OSError as error:
        raise UserError(f"{folder}: cannot be listed ({error.strerror}); unpack the set again, whole") from error


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").split("\n")
