"""Named Configs, and the rules for what a Config leaves open. A recipe's docstring gives command, score, time and hardware."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from concurl.amounts import counted
from concurl.config import Config, filled
from concurl.errors import UserError
from concurl.views.presets import SMALL, view_spec

# The scores of the paper's recipes are those that the paper reports; our own runs are in docs/results.md.


def _paper() -> Config:
    """What all sets have in common in the paper, where it is not a Config's own default."""
    return Config(n_clusters=10, preset="natural", colours="kornia")


def paper_cifar10() -> Config:
    """The paper's CIFAR-10 row: ACC 0.785, NMI 0.667, ARI 0.614 (500 epochs on a V100, by the paper).

    `concurl fit cifar10 --recipe paper-cifar10 -k 10 -o runs/paper-cifar10`. Ours, still with
    torchvision's colours, has ACC 0.627 after 385 epochs, 25 minutes on one H200.
    NOTE: the paper leaves the stem and the blur at 32 px open, and names the transformations of STL-10 only. Here: the
    small stem, the paper's own blur, and STL-10's transformations for all sets (docs/method.md).
    """
    return _paper().replace(epochs=500, batch_size=256, image_size=32, stem="small")


def paper_cifar100_20() -> Config:
    """The paper's CIFAR-100-20 row: ACC 0.409, NMI 0.390, ARI 0.232 (by the paper).

    `concurl fit cifar100-20 --recipe paper-cifar100-20 -k 20 -o runs/paper-cifar100-20`
    """
    return paper_cifar10().replace(n_clusters=20)


def paper_stl10() -> Config:
    """The paper's STL-10 row: ACC 0.752, NMI 0.645, ARI 0.580 (1000 epochs, by the paper).

    `concurl fit stl10 --recipe paper-stl10 -k 10 -o runs/paper-stl10`
    """
    return _paper().replace(epochs=1000, batch_size=128, image_size=96, stem="large")


def paper_imagenet10() -> Config:
    """The paper's ImageNet-10 row: ACC 0.931, NMI 0.882, ARI 0.869 (500 epochs, by the paper).

    `concurl fit imagenet10 --recipe paper-imagenet10 -k 10 -o runs/paper-imagenet10`
    """
    return _paper().replace(epochs=500, batch_size=128, image_size=224, stem="large")


def paper_imagenet_dogs() -> Config:
    """The paper's ImageNet-Dogs row: ACC 0.447, NMI 0.450, ARI 0.298 (500 epochs, by the paper).

    `concurl fit imagenet-dogs --recipe paper-imagenet-dogs -k 15 -o runs/paper-imagenet-dogs`
    """
    return paper_imagenet10().replace(n_clusters=15)


def digits() -> Config:
    """scikit-learn's handwritten digits on a laptop: the demo.

    `concurl demo`, or `concurl fit digits --recipe digits -k 10 -o runs/digits`: ACC 0.93 by codes in 2 minutes on 2 CPU cores
    (mean of six seeds, 0.915 to 0.949; k-means on pixels: 0.800). Its values come from trials scored on these digits.
    """
    return Config(
        n_clusters=10,
        encoder="tiny",
        stem="small",
        image_size=12,
        preset="gray",
        brightness=0.0,
        projector_hidden=256,
        projector_dim=64,
        cluster_hidden=256,
        embedding_dim=64,
        n_transforms=20,
        projection_dim=16,
        beta=0.5,
        gamma=0.5,
        cluster_start=0.75,
        cluster_lr=0.3,
        prototype_init="balanced",
        head_init="projector",
        codes_from="target",
        queue_size=960,
        min_sureness=0.9,
        epochs=120,
        batch_size=64,
        optimizer="adamw",
        learning_rate=2e-3,
        predictor_lr=10.0,
        weight_decay=1e-4,
        schedule="cosine",
        warmup=0.05,
        tau_b=0.98,
        monitor_every=5,
    )


def modern() -> Config:
    """Our default, for natural images of any size: first BYOL alone, for most of the training, then clusters.

    `concurl fit cifar10 -k 10 -o runs/cifar10`: ACC 0.923, NMI 0.862, ARI 0.851 by codes on all 60,000 images in 21.3
    minutes on one H200 (1000 epochs; means of two seeds). Its values come from trials scored on CIFAR-10: docs/results.md.
    What is None is chosen from the images by the rules of `settle`; nothing depends on the name of a data set.
    """
    return Config(
        encoder=None,
        epochs=None,
        batch_size=None,
        view_scale=None,
        optimizer="sgd",
        learning_rate=None,
        predictor_lr=10.0,
        weight_decay=5e-4,
        schedule="cosine",
        warmup=0.04,
        tau_b=0.99,
        tau_b_end=1.0,
        cluster_start=0.85,
        cluster_lr=0.1,
        prototype_init="balanced",
        head_init="projector",
        projector_hidden=None,
        cluster_hidden=None,
        codes_from="target",
        queue_size=3584,
        beta=0.5,
        gamma=0.5,
        monitor_every=5,
    )


RECIPES: dict[str, Callable[[], Config]] = {
    "modern": modern,
    "digits": digits,
    "paper-cifar10": paper_cifar10,
    "paper-cifar100-20": paper_cifar100_20,
    "paper-stl10": paper_stl10,
    "paper-imagenet10": paper_imagenet10,
    "paper-imagenet-dogs": paper_imagenet_dogs,
}


def recipe(name: str) -> Config:
    """The Config called `name`, or the one in a run's config.json."""
    if name.endswith(".json"):
        return Config.from_json(Path(name))
    if name not in RECIPES:
        near = difflib.get_close_matches(name, RECIPES, n=1)
        if (Path(name) / "config.json").exists():
            near = [f"{name}/config.json"]
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"unknown recipe {name!r}{hint} (there are: {', '.join(RECIPES)}; or a run's config.json)")
    return RECIPES[name]()


# ---- what a Config leaves open is settled from the images ---------------------------------------------------


CPU_SIZE = 64  # pixels: the largest size at which files are read for a CPU, unless image_size is given


@dataclass(frozen=True)
class SetFacts:
    """What the rules depend on: never a name, never a label."""

    n_images: int
    height: int  # of the stored images
    width: int
    gray: bool  # no image has colour
    gpu: bool
    left_out: int = 0  # files that are not images, or copies; only for an error message


def settle(config: Config, facts: SetFacts) -> tuple[Config, list[str]]:
    """The Config with its open options chosen, and for each choice a line with its value and its reason."""
    _check_enough(config, facts)
    said: list[str] = []

    def choose(name: str, value: object, why: str) -> None:
        nonlocal config
        if getattr(config, name) is None:
            config = config.replace(**{name: value})
            said.append(f"{name} = {value}: {why}")

    n, side = facts.n_images, min(facts.height, facts.width)
    device = "on a GPU" if facts.gpu else "on a CPU"
    taken_as_is = facts.gpu or side > CPU_SIZE  # for a CPU files are read no larger, so this is an array
    capped = "" if taken_as_is else f", but at most {CPU_SIZE} px on a CPU"
    choose("image_size", max(8, side if side <= 128 else round(side * 224 / 256)), f"the images' own size{capped}")
    size = filled(config.image_size)
    choose("stem", "small" if size <= (64 if facts.gpu else 32) else "large", f"for images of {size} px")
    gray = facts.gray and size <= 32
    upright = f"for images of {size} px (where nothing stands upright, as under a microscope, take --preset free)"
    drawn = "for small images without colour, as of digits and letters (for photographs take --preset small)"
    choose("preset", "gray" if gray else "small" if size <= SMALL else "natural", drawn if gray else upright)
    # A crop enlarges what it shows. In views of three quarters of the side, things are about as large as in the whole image,
    # which is what will be labelled. And a step costs half as much.
    crops = view_spec(config.replace(view_scale=1.0)).crop_min < 1
    choose("view_scale", 0.75 if crops else 1.0, f"views are {'crops' if crops else 'not cropped'}")
    choose("projector_hidden", 4096 if facts.gpu else 512, device)
    choose("cluster_hidden", config.projector_hidden, "as in the projector")
    choose("encoder", "resnet18" if facts.gpu else "light", device)
    # The largest power of two that leaves fifty steps per epoch: with few updates the clusters settle before the features
    # have formed. But at least 32, or batch norm sees too few images, and at most 512.
    fitting = [batch for batch in (64, 128, 256, 512) if 50 * batch <= n]
    choose("batch_size", min(max(fitting, default=32), n), f"for {n:,} images")
    # At 0.1, batches of 32 drive BYOL's features into a few directions, on some sets into two (docs/log.md).
    batch = filled(config.batch_size)
    if config.optimizer == "sgd":
        rate = min(0.1, round(0.1 * math.sqrt(batch / 512), 4))
        choose("learning_rate", rate, f"for batches of {counted(batch, 'image')}")
    else:
        choose("learning_rate", 5e-4, "the paper's, for Adam")
    # As many image passes as 1000 epochs of 60,000 images on a GPU, or about a quarter of an hour on a laptop's CPU.
    passes = 60_000_000 if facts.gpu else 300_000
    choose("epochs", min(1000, max(20, passes // n)), f"for {n:,} images {device}")
    return config, said


def _check_enough(config: Config, facts: SetFacts) -> None:
    """Refuse a set with fewer images than clusters, or than fill a batch."""
    n = facts.n_images
    if config.n_clusters > n:
        others = f" ({counted(facts.left_out, 'file')} left out: concurl audit says why)" if facts.left_out else ""
        remedy = "ask for fewer clusters" if n > 1 else "at least 2 are needed"
        raise UserError(f"n_clusters={config.n_clusters} is more than the {counted(n, 'image')}{others}; {remedy}")
    if config.batch_size is not None and config.batch_size > n:
        raise UserError(
            f"batch_size={config.batch_size} is larger than the set of {n} images; set --batch-size {n} or less"
        )
