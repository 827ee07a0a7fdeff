"""The only place where labels come in: scores of every way to read clusters out of a run, side by side."""

from __future__ import annotations

import logging
import os
import unicodedata
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path, PurePath

import numpy as np
import torch
from numpy.typing import NDArray

from concurl.clustering.assign import Assignment
from concurl.clustering.metrics import Labels, scores
from concurl.config import Config
from concurl.csvfile import read_columns
from concurl.data.files.shards import is_shard
from concurl.errors import UserError, no_such
from concurl.objective.kmeans import balanced_kmeans, spherical_kmeans
from concurl.training.monitor import Judge

log = logging.getLogger("concurl")

Scores = dict[str, dict[str, float]]
FOLDERS = "folders"  # in place of a csv of labels: the folders that the images lie in
SHOWN = 10  # of those folders, in the line that names them
TITLES = {
    "codes": "These clusters (codes)",
    "p": "Soft assignments p",
    "vote": "Soft vote of the ensemble",
    "kmeans_y_theta": "k-means on the encoder's features y",
    "kmeans_v_theta": "k-means on the projections v",
    "kmeans_w_theta": "k-means on the predictions w",
    "kmeans_y_xi": "k-means on the target encoder's features",
    "kmeans_v_xi": "k-means on the target's projections",
    "balanced_v_xi": "Equal-sized k-means on the target's projections",
    "kmeans_pixels": "k-means on the pixels (nothing learned)",
}  # of the partitions, for people; files keep the short names


def partitions(assignment: Assignment, config: Config, device: torch.device | None = None) -> dict[str, Labels]:
    """Every partition of the images that a run offers: its own, by p, by the soft vote, and by k-means on each branch kept.

    BYOL alone never trained its prototypes: its own partition is k-means on v_xi. That clusters have equal sizes is a hint
    that the codes have, so k-means has it once, too. Where fewer images are left than there are clusters, it has no say.
    """
    found = {"codes" if config.clusters else "kmeans_v_xi": assignment.labels}
    if config.clusters:
        found |= {"p": assignment.p_labels, "vote": assignment.vote_labels}
    for name, values in assignment.branches.items():
        if len(values) < config.n_clusters:
            continue
        x = torch.from_numpy(values).to(device)
        centres, labels = spherical_kmeans(x, config.n_clusters, seed=0)
        found.setdefault(f"kmeans_{name}", labels.cpu().numpy())
        if name == "v_xi":
            labels = balanced_kmeans(x, centres, config.epsilon, config.balance)[1]
            found["balanced_v_xi"] = labels.cpu().numpy()
    return found


def evaluate(found: dict[str, Labels], labels: Labels) -> Scores:
    """ACC, NMI, ARI of each partition over the images that have a label (-1: none)."""
    known = labels >= 0
    if not known.any():
        raise UserError("none of the images has a label: nothing to evaluate")
    return {name: scores(labels[known], partition[known]) for name, partition in found.items()}


def judge_of(labels: Labels | None) -> Judge | None:
    """What lets the monitor of a training score clusters without seeing a label; None if there are no labels."""
    if labels is None or not (labels >= 0).any():
        return None

    def judge(ids: Labels, clusters: Labels) -> dict[str, float]:
        known = labels[ids] >= 0
        return scores(labels[ids][known], clusters[known]) if known.any() else {}

    return judge


def over_labelled(labels: Labels) -> str:
    """Over which images scores are, where some have no label; empty where all have one."""
    known = int((labels >= 0).sum())
    return "" if known == len(labels) else f"over the {known:,} of {len(labels):,} images that have a label"


def table(found: Scores) -> str:
    """The scores as text, one row per partition."""
    titles = [TITLES.get(name, name) for name in found]
    width = max(map(len, titles))
    lines = [f"{'':{width}}     ACC     NMI     ARI"]
    rows = zip(titles, found.values(), strict=True)
    lines += [f"{title:{width}}{s['acc']:8.3f}{s['nmi']:8.3f}{s['ari']:8.3f}" for title, s in rows]
    return "\n".join(lines)


def read_labels(path: Path, names: Sequence[str], root: str | None = None) -> tuple[Labels, list[str]]:
    """Labels for `names` from a csv with the columns path and label (-1: none), and the class names, sorted.

    Some labels are enough: nobody labels 2,000 pictures by hand to learn how good the clusters are. If `path` is FOLDERS,
    and no file of that name, the labels are those of `labels_by_folder`, for which names start from `root`.
    """
    # A Mac's disk and its spreadsheet may write the same umlaut in two ways.
    names = [unicodedata.normalize("NFC", name) for name in names]
    by_folder = str(path) == FOLDERS and not path.is_file()
    given = labels_by_folder(names, root or "") if by_folder else _labels_in(path, set(names), root)
    classes = sorted({given[name] for name in names if name in given})
    if not classes:
        first, ours = next(iter(given)), next(iter(names), "")
        saved = "" if first.isprintable() else "; save it as csv in UTF-8"  # not the code page that Excel prefers
        raise UserError(
            f"{path}: none of its {len(given)} paths is in the run (it has, for example, {first!r}, the run {ours!r}){saved}"
        )
    if by_folder:  # whether these are the kinds that were meant, nobody else can tell
        more = ", ..." if len(classes) > SHOWN else ""
        log.info("labels: the %d folders %s%s", len(classes), ", ".join(classes[:SHOWN]), more)
    index = {name: i for i, name in enumerate(classes)}
    labels = np.array([index[given[name]] if name in given else -1 for name in names], dtype=np.int64)
    if strangers := len(given.keys() - set(names)):
        log.warning("%s: %d of its %d paths ignored: not in the run", path, strangers, len(given))
    return labels, classes


def labels_by_folder(names: Sequence[str], root: str = "") -> dict[str, str]:
    """name -> the first folder on its way down from the folder that holds all images; those that lie in none have no label.

    Tar shards are cut anywhere, so those on the way do not count, unless they alone tell images apart.
    """
    # from the root, as a list may name files beside its own folder: ".." is none
    whole = {name: PurePath(os.path.normpath(os.path.join(root, name))).parent.parts for name in names}
    inner = {name: tuple(part for part in parts if not is_shard(os.fsencode(part))) for name, parts in whole.items()}
    for folders in (inner, whole):
        levels = zip(*folders.values(), strict=False)
        shared = sum(1 for _ in takewhile(lambda level: len(set(level)) == 1, levels))
        found = {name: parts[shared] for name, parts in folders.items() if len(parts) > shared}
        if len(set(found.values())) > 1:
            return found
    raise UserError(
        f"--labels {FOLDERS}: the images lie in one folder; they can be told apart by folders where each kind has one"
    )


def _labels_in(path: Path, names: set[str], root: str | None) -> dict[str, str]:
    """path -> label, as the csv says, with paths as in `names` where they mean the same file."""
    given: dict[str, str] = {}
    try:
        for name, label in read_columns(path, "path", "label"):
            plain = _in_the_words_of(names, unicodedata.normalize("NFC", name.removeprefix("./")), path.parent, root)
            label = label.strip()  # a space that nobody sees would make a class of its own
            if label and given.setdefault(plain, label) != label:
                both = f"{given[plain]!r} and {label!r}"
                raise UserError(f"{path}: {name!r} has two labels, {both}; leave one")
    except FileNotFoundError:
        raise no_such(path) from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read as a csv ({error.strerror})") from None
    if not given:
        raise UserError(f"{path}: its column label is empty; fill it in for some images at least")
    return given


def _in_the_words_of(names: set[str], given: str, folder: Path, root: str | None) -> str:
    """The one of `names`, which start from `root`, that means the same file; `given` itself if none does.

    As in a list, paths that are not the run's own words start from the csv's folder or from the current one.
    """
    if given in names or root is None:
        return given
    top = unicodedata.normalize("NFC", os.path.join(root, ""))
    for start in (folder, Path()):
        whole = unicodedata.normalize("NFC", os.path.abspath(start / given))
        for name in (whole.removeprefix(top), whole):
            if name in names:
                return name
    return given


def pixel_baseline(images: NDArray[np.uint8], labels: Labels, n_clusters: int) -> dict[str, float]:
    """The scores of k-means on raw pixels: clustering without any learning."""
    from sklearn.cluster import KMeans

    pixels = images.reshape(len(images), -1) / np.float32(255)
    return scores(labels, KMeans(n_clusters, n_init=10, random_state=0).fit_predict(pixels))
