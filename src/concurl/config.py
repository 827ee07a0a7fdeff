"""Every option once: its paper symbol, its default and one line on what it means.

The command line and the estimator are both made from `Config`. The defaults are the paper's where the paper
gives a value; a NOTE marks the ones it leaves open. `None` means "chosen from the images": `recipes.settle`
fills those in by stated rules before training and says what it chose.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import numbers
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from PIL import ImageColor

from concurl.errors import UserError, no_such

LATE = frozenset({
    "n_clusters", "beta", "gamma", "n_transforms", "transforms", "projection_dim", "tau", "epsilon", "sinkhorn_iterations",
    "balance", "codes_from", "queue_size", "cluster_ramp", "prototype_init", "head_init", "cluster_lr",
})  # fmt: skip
"""The options that play no part before clustering begins: up to there, runs that differ in them alone are the same run.
(Of cluster_lr only whether it is set: see `Config.same_features`.)"""

LARGEST_SEED = 2**31 - 1
FEW = 10  # images for each cluster; a run with fewer is told what to expect

EncoderName = Literal["resnet18", "resnet34", "resnet50", "light", "tiny"]
Preset = Literal["natural", "small", "gray", "free", "none"]


@dataclass(frozen=True)
class Config:
    """All options of a run."""

    n_clusters: int = 10
    """[K] Number of clusters (and of prototypes)."""

    # ---- the objective ----------------------------------------------------------------------------------
    alpha: float = 1.0
    """[alpha] Weight of L1, the BYOL loss (eq. 7). (1,0,0) is BYOL, (0,1,0) soft clustering, (1,1,0) both."""
    beta: float = 1.0
    """[beta] Weight of L2, the soft clustering loss (eq. 7)."""
    gamma: float = 1.0
    """[gamma] Weight of L3, the consensus loss (eq. 7)."""
    n_transforms: int = 100
    """[M] Number of random transformations, that is of members of the ensemble."""
    transforms: Literal["projection", "diagonal"] = "projection"
    """[A] Family of the transformations: projections with orthonormal rows, or random diagonal scalings."""
    projection_dim: int = 64
    """[d of A] Dimension that the random projections map to."""
    tau: float = 0.1
    """[tau] Temperature of the soft assignments p (eq. 3)."""
    epsilon: float = 0.05
    """[epsilon] Entropy weight of the Sinkhorn codes (eq. 4). NOTE: not in the paper; SwAV's value."""
    sinkhorn_iterations: int = 3
    """Sinkhorn iterations per batch. NOTE: not in the paper; SwAV's value."""
    balance: float = 1.0
    """[q] How firmly the codes ask for clusters of equal size. 1: fully, as in the paper; 0: not at all. Less than 1 is for
    kinds of unequal frequency."""
    codes_from: Literal["online", "target"] = "online"
    """[q] Which branch's embeddings the codes are computed from. The paper: online."""
    queue_size: int = 0
    """Past embeddings per view that join the batch when its codes are balanced. The paper: none."""
    cluster_start: float = 0.0
    """Share of training after which L2 and L3 begin to act: at once where alpha is 0, with the last step at the latest. The
    paper: from the start."""
    cluster_ramp: float = 0.0
    """Share of training over which beta and gamma then rise linearly from 0."""
    prototype_init: Literal["random", "kmeans", "balanced"] = "random"
    """[C] Where the prototypes start. kmeans: the centres of k-means on the target's z when clustering begins; balanced: the
    same, moved on until clusters have about equal size (less so with --balance below 1). The paper: random."""
    head_init: Literal["random", "projector"] = "random"
    """[g] Start of the cluster head: random, or a copy of the projector when clustering begins (same shape needed)."""

    # ---- the network ------------------------------------------------------------------------------------
    encoder: EncoderName | None = "resnet34"
    """[f] Encoder. For CPUs: light is a ResNet-10 of half width, tiny a two-stage one. None: from image size and device."""
    stem: Literal["large", "small"] | None = None
    """First layers: large (7x7 stride 2 and max-pool) or small (3x3). NOTE: not in the paper. None: by image size and device."""
    projector_hidden: int | None = 4096
    """[g_theta, h_theta] Hidden width of projector and predictor. None: 4096 on a GPU, 512 on a CPU."""
    projector_dim: int = 256
    """[v, w] Output dimension of projector and predictor."""
    cluster_hidden: int | None = 2048
    """[g] Hidden width of the cluster head. None: the projector's."""
    embedding_dim: int = 256
    """[d] Dimension of the cluster embeddings z and of the prototypes."""
    tau_b: float = 0.99
    """[tau_B] Decay of the target network's exponential average."""
    tau_b_end: float | None = None
    """[tau_B] Value that tau_b rises to by a cosine over training. None: constant, as in the paper."""

    # ---- the images and their views ---------------------------------------------------------------------
    image_size: int | None = None
    """Side of the images in pixels, as they are labelled. None: from the images' own sizes."""
    background: str = "white"
    """Colour that shows through transparent parts: a name, or #rrggbb (in quotes, as # begins a comment in a shell)."""
    depth: int | None = None
    """Bits that all 16-bit pictures use, such as 12 for a 12-bit camera. None: as many as each picture needs by itself."""
    view_scale: float | None = 1.0
    """Side of the views that are trained on, as a share of image_size. The paper: 1. None: 0.75 if they are crops."""
    preset: Preset | None = None
    """Which augmentations the domain allows. natural: the paper's; small: no blur, as usual at 32 px; gray: small
    turns and shifts, no flip, colours stay; free: any orientation; none: no augmentation. None: from the images."""
    crop_min: float | None = None
    """Smallest share of the image's area that a random crop keeps. None: the preset's (the paper: 0.08)."""
    blur_kernel: int | None = None
    """Kernel of the Gaussian blur in pixels, odd; 0 switches blur off. None: the preset's (the paper: 23)."""
    n_views: int = 2
    """Views of each image and step. The paper: two. Of more, every pair counts, each as the paper's two."""
    solarise: float = 0.0
    """Probability of solarising view 2. The paper: 0."""
    sobel: bool = False
    """Replace the colours by the two Sobel gradients (the paper: helps in some cases)."""

    # ---- the optimisation -------------------------------------------------------------------------------
    epochs: int | None = 500
    """Passes over the images. None: from the number of images and the device."""
    batch_size: int | None = 256
    """[B] Images per step. None: from the number of images."""
    micro_batch: int | None = None
    """Images that go through the networks at once, for batches that do not fit: gradients add up over these parts of a
    step; codes stay those of the whole batch, batch norm sees a part. None: the whole batch."""
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    """Update rule. The paper: Adam."""
    learning_rate: float = 5e-4
    """Learning rate at its highest."""
    predictor_lr: float = 1.0
    """Factor on the learning rate of the predictor h_theta."""
    weight_decay: float = 0.0
    """Weight decay (not on biases, norms and prototypes)."""
    momentum: float = 0.9
    """Momentum of sgd."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Course of the learning rate after the warm-up. NOTE: the paper names none."""
    warmup: float = 0.0
    """Share of training (of each course, see cluster_lr) over which the learning rate rises linearly from 0."""
    cluster_lr: float | None = None
    """Factor on the learning rate once clustering has begun. If set, learning rate and tau_b end their course there, and run
    through it a second time. None, or clustering from the first step on: one course, without a factor."""
    seed: int = 0
    """Seed of everything random: weights, transformations, order, views."""

    # ---- the machine ------------------------------------------------------------------------------------
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the networks. auto: bfloat16 autocast on a GPU that has it, else float32."""
    reproducible: bool = True
    """On a GPU: the same kernels in every process, so that a seed gives the same run. Without: the fastest kernels, by a
    race at the start; some 6% faster, and no two runs alike."""
    compile: Literal["auto", "on", "off"] = "auto"
    """torch.compile and CUDA graphs; for several processes only the views are compiled. auto: on a GPU, from 2,000 steps."""
    checkpoint_minutes: float = 10.0
    """Longest time between two checkpoints."""
    checkpoint_epochs: int | None = None
    """Epochs between two checkpoints, besides those by the clock. None: by the clock alone."""
    monitor_every: int = 1
    """Epochs between two looks at diversity and cluster sizes."""
    monitor_images: int = 4096
    """How many (seeded, fixed) images that look takes."""

    def __post_init__(self) -> None:
        _check(self)

    def replace(self, **changes: Any) -> Config:
        """A copy with other values; an unknown name is answered with the nearest known one."""
        known = [field.name for field in dataclasses.fields(self)]
        for name in changes:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise UserError(f"unknown option {name}{hint}")
        return dataclasses.replace(self, **changes)

    def same_features(self, other: Config) -> bool:
        """Do runs of both have the same features where clustering begins?"""
        # A learning rate with a second course ends its first one there; how high the second one is plays no part.
        same_course = (self.cluster_lr is None) == (other.cluster_lr is None)
        return same_course and other.replace(**{name: getattr(self, name) for name in LATE}) == self

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Config:
        """A Config from json. Options of older versions that are missing take their defaults."""
        return cls().replace(**values)

    @classmethod
    def from_json(cls, path: Path) -> Config:
        try:
            return cls.from_dict(json.loads(path.read_text(encoding="utf-8")))
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        except FileNotFoundError:
            raise no_such(path) from None
        except (OSError, ValueError, TypeError, RecursionError) as error:
            where = f" ({error})" if isinstance(error, json.JSONDecodeError) else ""
            raise UserError(f"{path}: cannot be read as a configuration{where}") from None

    @property
    def view_size(self) -> int:
        """Side of the views in pixels."""
        assert self.image_size is not None and self.view_scale is not None, "settle the config first"
        return max(8, round(self.view_scale * self.image_size))

    @property
    def clusters(self) -> bool:
        """Does any clustering loss act at all?"""
        return self.beta > 0 or self.gamma > 0


# name: (smallest, largest), both allowed; None is always allowed where the type admits it
_RANGES: dict[str, tuple[float, float]] = {
    "n_clusters": (2, 1_000_000),
    "alpha": (0, 1_000_000),
    "beta": (0, 1_000_000),
    "gamma": (0, 1_000_000),
    "n_transforms": (1, 100_000),
    "projection_dim": (1, 65_536),
    "tau": (1e-4, 100),
    "epsilon": (1e-4, 100),
    "sinkhorn_iterations": (1, 10_000),
    "balance": (0, 1),
    "queue_size": (0, 10_000_000),
    "cluster_start": (0, 1),
    "cluster_ramp": (0, 1),
    "projector_hidden": (1, 1_000_000),
    "projector_dim": (1, 1_000_000),
    "cluster_hidden": (1, 1_000_000),
    "embedding_dim": (1, 1_000_000),
    "tau_b": (0, 1),
    "tau_b_end": (0, 1),
    "image_size": (8, 1024),
    "depth": (8, 16),
    "view_scale": (0.1, 2),
    "crop_min": (0.001, 1),
    "blur_kernel": (0, 255),
    "n_views": (2, 16),
    "solarise": (0, 1),
    "epochs": (1, 1_000_000),
    "batch_size": (2, 1_000_000),
    "micro_batch": (1, 1_000_000),
    "learning_rate": (1e-9, 1000),
    "predictor_lr": (0, 1000),
    "weight_decay": (0, 100),
    "momentum": (0, 1),
    "warmup": (0, 1),
    "cluster_lr": (0, 1000),
    "seed": (0, LARGEST_SEED),
    "checkpoint_minutes": (0, math.inf),
    "checkpoint_epochs": (1, 1_000_000),
    "monitor_every": (1, 1_000_000),
    "monitor_images": (2, 10_000_000),
}


def _check(config: Config) -> None:
    hints = get_type_hints(Config)
    for field in dataclasses.fields(config):
        name, value, kind = field.name, getattr(config, field.name), hints[field.name]
        choices = [c for part in (kind, *get_args(kind)) if get_origin(part) is Literal for c in get_args(part)]
        if value is None:
            if type(None) not in get_args(kind):
                raise UserError(f"{name}=None: a value is needed")
        elif choices:
            if value not in choices:
                raise UserError(f"{name}={value!r}: choose one of {', '.join(map(str, choices))}")
        elif kind in (bool, str):
            if not isinstance(value, kind):
                raise UserError(f"{name}={value!r}: {'true or false' if kind is bool else 'a text'} is needed")
        elif name in _RANGES:
            low, high = _RANGES[name]
            whole = int in (kind, *get_args(kind))
            number = isinstance(value, numbers.Integral if whole else numbers.Real) and not isinstance(value, bool)
            if not number or not low <= value <= high:
                what = "whole number" if whole else "number"
                raise UserError(f"{name}={value!r}: a {what} from {low:,} to {high:,} is needed")
            if type(value) not in (int, float):  # numpy's, perhaps: json knows only Python's own
                object.__setattr__(config, name, int(value) if isinstance(value, numbers.Integral) else float(value))
    if not _is_colour(config.background):
        raise UserError(f"background={config.background!r}: a colour is needed, such as white, black or #808080")
    if config.blur_kernel and config.blur_kernel % 2 == 0:
        raise UserError(f"blur_kernel={config.blur_kernel}: an odd number of pixels is needed")
    if config.alpha == config.beta == config.gamma == 0:
        raise UserError("alpha=beta=gamma=0: at least one loss must have a weight")
    same_hidden = config.cluster_hidden in (None, config.projector_hidden)
    if config.head_init == "projector" and not (same_hidden and config.embedding_dim == config.projector_dim):
        raise UserError(
            f"head_init=projector: cluster_hidden={config.cluster_hidden} and embedding_dim={config.embedding_dim} must "
            f"equal projector_hidden={config.projector_hidden} and projector_dim={config.projector_dim}"
        )
    if config.transforms == "projection" and config.projection_dim > config.embedding_dim:
        raise UserError(
            f"projection_dim={config.projection_dim}: rows can only be orthogonal up to "
            f"embedding_dim={config.embedding_dim}; lower the one or raise the other"
        )


def _is_colour(text: str) -> bool:
    try:
        return len(ImageColor.getrgb(text)) == 3  # a fourth would be its own alpha
    except ValueError:
        return False
