"""The networks as they were when clustering began: what another K, or a look at the features alone, starts from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from concurl.config import Config
from concurl.errors import UserError, call
from concurl.network.model import Model
from concurl.runs.runfolder import MODEL
from concurl.training.checkpoint import checkpoints, load_newest
from concurl.training.state import under
from concurl.training.trainer import CHECKPOINTS, FEATURES


def features(folder: Path, config: Config) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The run's state when its clustering began, and the facts of that checkpoint; an error says why if there is none."""
    found = load_newest(folder / FEATURES)
    if found is not None:
        return found
    if checkpoints(folder / FEATURES):
        why = f"{folder / FEATURES} is damaged; bring it back, or train anew"
    elif not config.clusters:
        why = "beta and gamma are both 0 there, so clustering never begins"
    elif config.cluster_start == 0 or config.alpha == 0:
        why = "clustering began with the first step (see --cluster-start)"
    elif not (folder / MODEL).is_dir():
        why = f"clustering has not begun yet; go on with it first: {call('fit', '--resume', '-o', folder)}"
    else:
        anew = "train anew (if clustering began at once: for more epochs, or with a later --cluster-start)"
        why = f"{folder / FEATURES} is not there; bring it back, or {anew}"
    raise UserError(f"{folder} has no sound features to go on from: {why}")


def feature_model(folder: Path, config: Config) -> Model:
    """The networks as they were when clustering began, or at the end of a run that never clusters. Prototypes are new."""
    if config.clusters:
        state, _ = features(folder, config)
    elif (found := load_newest(folder / CHECKPOINTS)) is not None:
        state = found[0]
    else:
        raise UserError(f"{folder}: its last checkpoint is gone or damaged; bring {CHECKPOINTS}/ back, or train anew")
    model = Model(config)
    weights = under("model", state) | {"prototypes": model.prototypes}  # those kept may be of a run with another K
    try:
        model.load_state_dict(weights)
    except RuntimeError:
        raise UserError(f"{folder}: its features do not belong to its config.json; bring the right one back") from None
    return model
