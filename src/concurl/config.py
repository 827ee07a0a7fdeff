"""Every option once: its symbol in the paper, its range, its default and a line on what it means.

The command line and the estimator both take their options from `Config`. The defaults are the paper's where the paper gives
a value; a NOTE marks those that it leaves open. None means "chosen from the images": before training `recipes.settle` fills
these in, by rules that do not depend on labels or names, and says what it chose.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import math
import numbers
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from PIL import ImageColor

from concurl.errors import UserError, no_such

LATE = frozenset({
    "n_clusters", "beta", "gamma", "n_transforms", "transforms", "projection_dim", "tau", "epsilon", "sinkhorn_iterations",
    "balance", "codes_from", "queue_size", "min_sureness", "cluster_ramp", "prototype_init", "head_init", "cluster_lr",
})  # fmt: skip
"""The options that have no effect before clustering begins: runs that differ only in these are the same run until then.
(Of cluster_lr the value has none, but whether it is set does: see `Config.same_features`.)"""

LARGEST_SEED = 2**31 - 1
FEW = 10  # images per cluster; with fewer, the user is told to expect little
FEWEST = 2  # clusters that can be asked for: no advice may ask for fewer

T = TypeVar("T")
EncoderName = Literal["resnet18", "resnet34", "resnet50", "light", "tiny"]
Preset = Literal["natural", "small", "gray", "free", "none"]


class Range(NamedTuple):
    """The smallest and the largest value of a number, both allowed."""

    low: float
    high: float


@dataclass(frozen=True, repr=False)
class Config:
    """All options of a run."""

    n_clusters: Annotated[int, Range(FEWEST, 1_000_000)] = 10
    """[K] Number of clusters (and of prototypes)."""

    # ---- the objective ----------------------------------------------------------------------------------
    alpha: Annotated[float, Range(0, 1_000_000)] = 1.0
    """[alpha] Weight of L1, the BYOL loss (eq. 7). (1,0,0) is BYOL, (0,1,0) soft clustering, (1,1,0) both."""
    beta: Annotated[float, Range(0, 1_000_000)] = 1.0
    """[beta] Weight of L2, the soft clustering loss (eq. 7)."""
    gamma: Annotated[float, Range(0, 1_000_000)] = 1.0
    """[gamma] Weight of L3, the consensus loss (eq. 7)."""
    n_transforms: Annotated[int, Range(1, 100_000)] = 100
    """[M] Number of random transformations, and so of members of the ensemble."""
    transforms: Literal["projection", "diagonal"] = "projection"
    """[A] Family of the transformations: projections with orthonormal rows, or random diagonal scalings."""
    projection_dim: Annotated[int, Range(1, 65_536)] = 64
    """[d of A] Dimension that the random projections map to."""
    tau: Annotated[float, Range(1e-4, 100)] = 0.1
    """[tau] Temperature of the soft assignments p (eq. 3)."""
    epsilon: Annotated[float, Range(1e-4, 100)] = 0.05
    """[epsilon] Entropy weight of the Sinkhorn codes (eq. 4). NOTE: not in the paper; SwAV's value."""
    sinkhorn_iterations: Annotated[int, Range(1, 10_000)] = 3
    """Sinkhorn iterations per batch. NOTE: not in the paper; SwAV's value."""
    balance: Annotated[float, Range(0, 1)] = 1.0
    """[q] How strongly the codes ask for clusters of equal size. 1: fully, as in the paper; 0: not at all. Take less than 1 if
    some kinds of images are more frequent than others."""
    codes_from: Literal["online", "target"] = "online"
    """[q] Which branch's embeddings the codes are computed from. The paper: online."""
    queue_size: Annotated[int, Range(0, 10_000_000)] = 0
    """Past embeddings per view that join the batch when its codes are balanced. The paper: none."""
    min_sureness: Annotated[float, Range(0, 1)] = 0.0
    """[p~] Once a fifth of the time with clusters has passed, an image trains the networks through L2 and L3 only if the ensemble
    is at least this sure of its cluster: p / (p + p'), with p its mean probability for that cluster and p' the highest for
    another (0.5: equal; 0.9: nine to one). The paper: 0, all images do."""
    cluster_start: Annotated[float, Range(0, 1)] = 0.0
    """Share of training after which L2 and L3 begin to act: at once if alpha is 0, in the last step at the latest. The paper:
    from the start."""
    cluster_ramp: Annotated[float, Range(0, 1)] = 0.0
    """Share of training over which beta and gamma then rise linearly from 0."""
    prototype_init: Literal["random", "kmeans", "balanced"] = "random"
    """[C] Where the prototypes start. kmeans: at the centres of k-means on the target's z when clustering begins; balanced: the
    same, then moved until the codes weigh about the same on each (less so with --balance below 1). The paper: random."""
    head_init: Literal["random", "projector"] = "random"
    """[g] Start of the cluster head: random, or a copy of the projector when clustering begins (same shape needed)."""

    # ---- the network ------------------------------------------------------------------------------------
    encoder: EncoderName | None = "resnet34"
    """[f] Encoder. For CPUs: light is a ResNet-10 of half width, tiny has its first two stages alone. None: by device."""
    stem: Literal["large", "small"] | None = None
    """First layers: large (7x7 stride 2 and max-pool) or small (3x3). NOTE: not in the paper. None: by image size and device."""
    projector_hidden: Annotated[int | None, Range(1, 1_000_000)] = 4096
    """[g_theta, h_theta] Hidden width of projector and predictor. None: 4096 on a GPU, 512 on a CPU."""
    projector_dim: Annotated[int, Range(1, 1_000_000)] = 256
    """[v, w] Output dimension of projector and predictor."""
    cluster_hidden: Annotated[int | None, Range(1, 1_000_000)] = 2048
    """[g] Hidden width of the cluster head. None: the projector's."""
    embedding_dim: Annotated[int, Range(2, 1_000_000)] = 256
    """[d] Dimension of the cluster embeddings z and of the prototypes."""
    batch_norm: Literal["joint", "apart"] = "joint"
    """[f, g, h] Whose statistics batch norm takes in training. joint: those of all views of a batch together; apart: of each view
    its own. NOTE: the paper leaves it open. BYOL's code: apart."""
    tau_b: Annotated[float, Range(0, 1)] = 0.99
    """[tau_B] Decay of the target network's exponential average."""
    tau_b_end: Annotated[float | None, Range(0, 1)] = None
    """[tau_B] Value that tau_b rises to by a cosine over training. None: constant, as in the paper."""

    # ---- the images and their views ---------------------------------------------------------------------
    image_size: Annotated[int | None, Range(8, 1024)] = None
    """Side of the images in pixels, as they are labelled. None: from the images' own sizes."""
    background: str = "white"
    """Colour that shows through transparent parts: a name, or #rrggbb (in quotes, as # begins a comment in a shell)."""
    depth: Annotated[int | None, Range(8, 16)] = None
    """Bits that all 16-bit pictures use, such as 12 for a 12-bit camera. None: as many as each picture needs."""
    view_scale: Annotated[float | None, Range(0.1, 2)] = 1.0
    """Side of the views that are trained on, as a share of image_size. The paper: 1. None: 0.75 if they are crops."""
    preset: Preset | None = None
    """Which augmentations the domain allows. natural: the paper's; small: no blur, as usual at 32 px; gray: small
    turns and shifts, brightness, no flip, hues stay; free: any orientation; none: no augmentation. None: from the images."""
    crop_min: Annotated[float | None, Range(0.001, 1)] = None
    """Smallest share of the image's area that a random crop keeps. None: the preset's (the paper: 0.08)."""
    brightness: Annotated[float | None, Range(0, 1)] = None
    """Largest change of brightness and of contrast, as a share, either way; 0 keeps them. None: the preset's (0.4)."""
    colours: Literal["torchvision", "kornia"] = "torchvision"
    """Formulas of the colour changes. kornia: those that Kornia had in 2021, as the paper; at equal strengths they change
    twice as much. torchvision: the usual ones."""
    blur_kernel: Annotated[int | None, Range(0, 255)] = None
    """Kernel of the Gaussian blur in pixels, odd; 0 switches blur off. None: the preset's (the paper: 23)."""
    n_views: Annotated[int, Range(2, 16)] = 2
    """Views of each image in a step. The paper: 2. With more, the losses are means over all pairs of views."""
    solarise: Annotated[float, Range(0, 1)] = 0.0
    """Probability of solarising view 2. The paper: 0."""
    sobel: bool = False
    """Replace the colours by the two Sobel gradients (the paper: helps in some cases)."""

    # ---- the optimisation -------------------------------------------------------------------------------
    epochs: Annotated[int | None, Range(1, 1_000_000)] = 500
    """Passes over the images. None: from the number of images and the device."""
    batch_size: Annotated[int | None, Range(2, 1_000_000)] = 256
    """[B] Images per step. None: from the number of images."""
    micro_batch: Annotated[int | None, Range(1, 1_000_000)] = None
    """Images that go through the networks at once, for batches that do not fit into memory. The gradients of these parts add
    up, and codes are those of the whole batch, but batch norm sees only a part. None: the whole batch."""
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    """Update rule. The paper: Adam."""
    learning_rate: Annotated[float | None, Range(1e-9, 1000)] = 5e-4
    """Learning rate at its highest. None: 0.1 for batches from 512, less for smaller ones, by the square
    root; 5e-4 with Adam."""
    predictor_lr: Annotated[float, Range(0, 1000)] = 1.0
    """Factor on the learning rate of the predictor h_theta."""
    weight_decay: Annotated[float, Range(0, 100)] = 0.0
    """Weight decay (not on biases, norms and prototypes)."""
    momentum: Annotated[float, Range(0, 1)] = 0.9
    """Momentum of sgd."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Schedule of the learning rate after the warm-up. NOTE: the paper names none."""
    warmup: Annotated[float, Range(0, 1)] = 0.0
    """Share of training (of each stage, see cluster_lr) over which the learning rate rises linearly from 0."""
    cluster_lr: Annotated[float | None, Range(0, 1000)] = None
    """Factor on the learning rate after clustering has begun. If set, training has two stages: learning rate and tau_b end their
    schedule where clustering begins, and start it again. None, or clustering from the first step on: one stage, no factor."""
    seed: Annotated[int, Range(0, LARGEST_SEED)] = 0
    """Seed of everything random: weights, transformations, order, views."""

    # ---- the machine ------------------------------------------------------------------------------------
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the networks. auto: bfloat16 autocast on a GPU that has it, else float32."""
    reproducible: bool = True
    """On a GPU: the same kernels in every process, so that a seed always gives the same run. Without: the kernels that are
    fastest in a trial at the start; some 6% faster, but no two runs are alike."""
    compile: Literal["auto", "on", "off"] = "auto"
    """torch.compile and CUDA graphs; for several processes only the views are compiled. auto: on a GPU, from 2,000 steps."""
    checkpoint_minutes: Annotated[float, Range(0, math.inf)] = 10.0
    """Longest time between two checkpoints."""
    checkpoint_epochs: Annotated[int | None, Range(1, 1_000_000)] = None
    """Epochs between two checkpoints, besides those by the clock. None: by the clock alone."""
    monitor_every: Annotated[int, Range(1, 1_000_000)] = 1
    """Epochs between two measurements of diversity and cluster sizes."""
    monitor_images: Annotated[int, Range(2, 10_000_000)] = 4096
    """How many images they are measured on: a fixed, seeded sample."""

    def __post_init__(self) -> None:
        for name, kind in _annotations().items():
            _check_value(self, name, kind)
        _check_rest(self)

    def __repr__(self) -> str:
        """What differs from the defaults: all of it would fill a screen."""
        values = ((field, getattr(self, field.name)) for field in dataclasses.fields(self))
        return f"Config({', '.join(f'{field.name}={value!r}' for field, value in values if value != field.default)})"

    def replace(self, **changes: Any) -> Config:
        """A copy with other values; for an unknown name the error suggests the nearest known one."""
        known = [field.name for field in dataclasses.fields(self)]
        for name in changes:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise UserError(f"unknown option {name}{hint}")
        return dataclasses.replace(self, **changes)

    def same_features(self, other: Config) -> bool:
        """Would runs of both have the same features when clustering begins?"""
        # With a cluster_lr, whatever its value, the learning rate ends its first schedule there.
        same_stages = (self.cluster_lr is None) == (other.cluster_lr is None)
        return same_stages and other.replace(**{name: getattr(self, name) for name in LATE}) == self

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Config:
        """A Config from json. Options that an older version did not have take their defaults."""
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
        return max(8, round(filled(self.view_scale) * filled(self.image_size)))

    @property
    def channels(self) -> int:
        """Channels of a view: the three colours, or the two Sobel gradients."""
        return 2 if self.sobel else 3

    @property
    def clusters(self) -> bool:
        """Does any clustering loss have a weight?"""
        return self.beta > 0 or self.gamma > 0


def filled(value: T | None) -> T:
    """The value of an option that may be None, where `recipes.settle` has filled it in."""
    assert value is not None, "settle the config first"
    return value


@functools.cache
def _annotations() -> dict[str, Any]:
    return get_type_hints(Config, include_extras=True)


def _check_value(config: Config, name: str, kind: Any) -> None:
    """Refuse a value that its option's annotation, `kind`, does not allow."""
    value, limits = getattr(config, name), None
    if get_origin(kind) is Annotated:
        kind, limits = get_args(kind)
    kinds = (kind, *get_args(kind))
    choices = [choice for part in kinds if get_origin(part) is Literal for choice in get_args(part)]
    if value is None:
        if NoneType not in kinds:
            raise UserError(f"{name}=None: a value is needed")
    elif choices:
        if value not in choices:
            raise UserError(f"{name}={value!r}: choose one of {', '.join(map(str, choices))}")
    elif limits is None:
        if not isinstance(value, kind):
            raise UserError(f"{name}={value!r}: {'true or false' if kind is bool else 'a text'} is needed")
    else:
        whole = int in kinds
        number = isinstance(value, numbers.Integral if whole else numbers.Real) and not isinstance(value, bool)
        if not number or not limits.low <= value <= limits.high:
            what = "whole number" if whole else "number"
            raise UserError(f"{name}={value!r}: a {what} from {limits.low:,} to {limits.high:,} is needed")
        if type(value) not in (int, float):  # numpy's, perhaps: json knows only Python's own
            object.__setattr__(config, name, int(value) if isinstance(value, numbers.Integral) else float(value))


def _check_rest(config: Config) -> None:
    """Refuse what an annotation cannot express."""
    if not _is_colour(config.background):
        raise UserError(f"background={config.background!r}: a colour is needed, such as white, black or #808080")
    if config.blur_kernel and config.blur_kernel % 2 == 0:
        raise UserError(f"blur_kernel={config.blur_kernel}: an odd number of pixels is needed")
    if config.alpha == config.beta == config.gamma == 0:
        raise UserError("alpha=beta=gamma=0: at least one loss must have a weight")
    hidden = (config.cluster_hidden, config.projector_hidden)
    same_hidden = None in hidden or hidden[0] == hidden[1]  # what is open yet is looked at again when it is settled
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
