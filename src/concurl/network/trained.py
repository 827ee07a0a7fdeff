"""A finished model: all that is needed to label images, as safetensors and json. No pickle is read or written."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from concurl.atomic import cannot_write, rename_folder, sync_folder, write_synced
from concurl.config import Config, filled
from concurl.errors import UserError, said_by
from concurl.network.encoder import check_encoder
from concurl.network.model import Model

SCHEMA = 1
FILES = frozenset({"model.json", "model.safetensors"})


@dataclass(frozen=True)
class TrainedModel:
    """Model, centres, transformations and log-scalings, with the settled config of their training.

    label = argmax_k(<e, c_k> / epsilon + u_k), where e is the unit embedding in `space`.
    """

    config: Config
    model: Model
    space: Literal["z", "v_xi"]  # v_xi for BYOL alone, which has no trained prototypes
    centres: Tensor  # (K, dim), unit length
    A: Tensor  # (M, projection_dim, dim) or (M, dim)
    scalings: Tensor  # (K,): u, see objective.sinkhorn
    autocast: torch.dtype | None = None

    @property
    def image_size(self) -> int:
        return filled(self.config.image_size)

    def save(self, folder: Path) -> None:
        """Write model.json and model.safetensors; an older model is replaced only once the new one is complete.

        A folder that holds anything else is refused, and left as it is.
        """
        place = folder.resolve()
        if _current_folder_is_in(place):  # it would be replaced under our feet
            raise UserError(f"{folder}: the current folder is in use; name one inside it, such as {folder / 'model'}")
        if place.is_mount():  # a container's volume, say: it cannot be renamed
            raise UserError(
                f"{folder}: a disk or volume is mounted there; name one inside it, such as {folder / 'model'}"
            )
        aside, former = (place.with_name(place.name + ending) for ending in (".part", ".replaced"))
        _check_ours(place, folder)
        _check_ours(aside, aside)
        _check_ours(former, former)
        weights = self._weights()
        about = {
            "format": "concurl-model",
            "schema": SCHEMA,
            "space": self.space,
            "sha256": hashlib.sha256(weights).hexdigest(),
            "config": dataclasses.asdict(self.config),
        }
        try:
            _remove(aside)  # a kill may have left it
            aside.mkdir(parents=True)
            write_synced(aside / "model.safetensors", weights)
            write_synced(aside / "model.json", (json.dumps(about, indent=2) + "\n").encode())
            if place.exists():
                _remove(former)
                rename_folder(place, former)
            aside.rename(place)
            sync_folder(place.parent)
            _remove(former)
        except BaseException as error:
            with suppress(OSError):
                _remove(aside)
                if former.exists() and not place.exists():
                    former.rename(place)
            if isinstance(error, OSError):
                raise cannot_write(error, folder, len(weights)) from error
            raise

    def digest(self) -> str:
        """A hash of everything that a label depends on."""
        return hashlib.sha256(self._weights() + self.config.to_json().encode()).hexdigest()

    def _weights(self) -> bytes:
        tensors = {f"model.{name}": t for name, t in self.model.state_dict().items()}
        tensors |= {name: getattr(self, name) for name in ("centres", "A", "scalings")}
        # Copies, because safetensors refuses a weight that a user's encoder shares between two places.
        return save({name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()})

    @classmethod
    def load(
        cls, folder: Path, *, device: torch.device | None = None, encoder: nn.Module | None = None
    ) -> TrainedModel:
        """Read a model folder, or refuse it in one line. A user's own encoder must be given again."""
        about = _read_about(folder)
        with _damage_told(folder):
            config, space = Config.from_dict(about["config"]), about["space"]
            if space not in ("z", "v_xi"):
                raise ValueError(f"unknown space {space!r}")
            if config.image_size is None:
                raise ValueError("its image_size is open")
        if encoder is not None:  # a lazy layer has no shapes before it has seen an image
            check_encoder(encoder, filled(config.image_size), config.channels)
        with _damage_told(folder):
            with torch.device("meta"):  # no memory yet: a wrong json may ask for any amount
                model = Model(config, encoder)
            weights = (folder / "model.safetensors").read_bytes()
            if hashlib.sha256(weights).hexdigest() != about["sha256"]:
                raise ValueError("model.safetensors does not match the hash in model.json")
            tensors = load(weights)
            centres, A, u = (tensors.pop(name) for name in ("centres", "A", "scalings"))
            _check_readout(config, space, centres, A, u)
            _check_weights(model.state_dict(), tensors)
            model.load_state_dict({k.removeprefix("model."): v for k, v in tensors.items()}, assign=True)
        device = device or torch.device("cpu")
        model = model.to(device=device, memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
        return cls(config, model, space, centres.to(device), A.to(device), u.to(device))


def _current_folder_is_in(place: Path) -> bool:
    try:
        return Path.cwd().is_relative_to(place)
    except FileNotFoundError:  # it has been removed, and so is nowhere
        return False


def _check_ours(place: Path, named: Path) -> None:
    """Refuse to write where there are files that do not belong to a model."""
    try:
        others = sorted(path.name for path in place.iterdir() if path.name not in FILES)
    except FileNotFoundError:
        return
    except OSError as error:
        raise cannot_write(error, named) from None
    if others:
        more = f" and {len(others) - 1:,} more" if len(others) > 1 else ""
        raise UserError(f"{named}: {others[0]}{more} would be lost; a model needs a folder of its own")


def _remove(folder: Path) -> None:
    """Remove a model's folder. If a file has been added since the check, this fails, and the file stays."""
    if folder.is_dir():
        for name in FILES:
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


@contextmanager
def _damage_told(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, KeyError, TypeError, ValueError, AssertionError, RuntimeError, SafetensorError) as error:
        raise UserError(
            f"{folder}: cannot be read as a model ({said_by(error)}); make it anew with concurl fit --resume"
        ) from None


def _check_weights(wanted: dict[str, Tensor], found: dict[str, Tensor]) -> None:
    """Loaded tensors are used as they are, so none may be missing, and each must have the right type and shape."""
    if found.keys() != {f"model.{name}" for name in wanted}:
        raise ValueError(
            "its weights are those of another network; an encoder of your own is given to ConCURL.load(..., encoder=...)"
        )
    for name, want in wanted.items():
        tensor = found[f"model.{name}"]
        if tensor.shape != want.shape or tensor.dtype != want.dtype:
            raise ValueError(f"{name} is {tensor.dtype} {tuple(tensor.shape)}, not {want.dtype} {tuple(want.shape)}")
        _check_finite(name, tensor)


def _check_readout(config: Config, space: str, centres: Tensor, A: Tensor, u: Tensor) -> None:
    """Centres, transformations and scalings must fit the config and each other."""
    K, dim = config.n_clusters, config.embedding_dim if space == "z" else config.projector_dim
    wanted = {"centres": (K, dim), "scalings": (K,)}
    for name, tensor in (("centres", centres), ("scalings", u), ("A", A)):
        if tensor.dtype != torch.float32 or tuple(tensor.shape) != wanted.get(name, tuple(tensor.shape)):
            raise ValueError(f"{name} is {tensor.dtype} {tuple(tensor.shape)}, not float32 {wanted.get(name, '')}")
        _check_finite(name, tensor)
    if A.dim() != (2 if config.transforms == "diagonal" else 3) or A.shape[-1] != dim or not A.numel():
        raise ValueError(f"A of shape {tuple(A.shape)} does not map embeddings of dimension {dim}")


def _check_finite(name: str, tensor: Tensor) -> None:
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{name} holds NaN or infinity")


def _read_about(folder: Path) -> dict[str, Any]:
    try:
        about = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise UserError(
            f"{folder}: no model here (no readable model.json); give a run's folder or its model/"
        ) from None
    if not isinstance(about, dict) or about.get("format") != "concurl-model":
        raise UserError(f"{folder}: model.json is not one of ours; give a run's folder or its model/")
    schema = about.get("schema")
    if not isinstance(schema, int) or schema < 1:
        raise UserError(f"{folder}: cannot be read as a model (schema {schema!r}); make it anew with concurl fit")
    if schema > SCHEMA:
        raise UserError(f"{folder}: written by a newer version (schema {schema}); upgrade concurl")
    return about
