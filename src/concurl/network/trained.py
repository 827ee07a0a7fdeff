"""A finished model: what is needed to label images, as safetensors and json. No pickle is read or written."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from concurl.config import Config
from concurl.errors import UserError
from concurl.network.model import Model

SCHEMA = 1


@dataclass(frozen=True)
class TrainedModel:
    """Model, centres, transformations and log-scalings, with the settled config they were made under.

    label = argmax_k(<e, c_k> / epsilon + u_k), where e is the unit embedding in `space`.
    """

    config: Config
    model: Model
    space: Literal["z", "v_xi"]  # v_xi for BYOL alone, whose clusters are k-means' and not prototypes
    centres: Tensor  # (K, dim), unit length
    A: Tensor  # (M, projection_dim, dim) or (M, dim)
    scalings: Tensor  # (K,): u, see objective.sinkhorn
    autocast: torch.dtype | None = None

    @property
    def image_size(self) -> int:
        assert self.config.image_size is not None
        return self.config.image_size

    def save(self, folder: Path) -> None:
        """Write model.json and model.safetensors; a folder is replaced only once the new one is whole."""
        aside = folder.with_name(folder.name + ".part")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        weights = self._weights()
        about = {
            "format": "concurl-model",
            "schema": SCHEMA,
            "space": self.space,
            "sha256": hashlib.sha256(weights).hexdigest(),
            "config": dataclasses.asdict(self.config),
        }
        (aside / "model.safetensors").write_bytes(weights)
        (aside / "model.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)

    def digest(self) -> str:
        """The hash of all that decides a label."""
        return hashlib.sha256(self._weights() + self.config.to_json().encode()).hexdigest()

    def _weights(self) -> bytes:
        tensors = {f"model.{name}": t for name, t in self.model.state_dict().items()}
        tensors |= {name: getattr(self, name) for name in ("centres", "A", "scalings")}
        return save({name: t.detach().cpu().contiguous() for name, t in tensors.items()})

    @classmethod
    def load(
        cls, folder: Path, *, device: torch.device | None = None, encoder: nn.Module | None = None
    ) -> TrainedModel:
        """Read a model folder, or refuse it in one line. An encoder from outside must be given again."""
        about = _read_about(folder)
        try:
            weights = (folder / "model.safetensors").read_bytes()
            if hashlib.sha256(weights).hexdigest() != about["sha256"]:
                raise ValueError("model.safetensors does not match the hash in model.json")
            config = Config.from_dict(about["config"])
            tensors = load(weights)
            model = Model(config, encoder)
            model.load_state_dict({k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")})
            centres, A, u = tensors["centres"], tensors["A"], tensors["scalings"]
            space = about["space"]
            if space not in ("z", "v_xi"):
                raise ValueError(f"unknown space {space!r}")
        except (OSError, KeyError, TypeError, ValueError, AssertionError, RuntimeError, SafetensorError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(f"{folder}: cannot be read as a model ({reason}); make it anew with concurl fit") from None
        device = device or torch.device("cpu")
        model = model.to(device=device, memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
        return cls(config, model, space, centres.to(device), A.to(device), u.to(device))


def _read_about(folder: Path) -> dict[str, Any]:
    try:
        about = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UserError(
            f"{folder}: no model here (no readable model.json); give a run's folder or its model/"
        ) from None
    if not isinstance(about, dict) or about.get("format") != "concurl-model":
        raise UserError(f"{folder}: model.json is not one of ours; give a run's folder or its model/")
    if not isinstance(about.get("schema"), int) or about["schema"] > SCHEMA:
        raise UserError(f"{folder}: written by a newer version (schema {about.get('schema')}); upgrade concurl")
    return about
