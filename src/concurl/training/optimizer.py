"""The update rule: Adam as in the paper, AdamW or SGD, with a learning rate of its own for the predictor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from concurl.config import Config, filled
from concurl.network.model import Model


def make_optimizer(config: Config, model: Model) -> torch.optim.Optimizer:
    """The optimiser of all that is trained; weights are decayed, but not biases, norms and prototypes.

    The predictor has groups of its own, for its learning rate. So have the cluster parts, which get no gradient before
    clustering begins: fused SGD requires that all momenta of a group begin in the same step. Learning rates are tensors on
    the device, so that a change needs neither the host nor a new CUDA graph.
    """
    groups: dict[tuple[str, bool], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            clusters = name.startswith("online.cluster_head.") or name == "prototypes"
            part = "clusters" if clusters else name.split(".")[0]
            decayed = parameter.dim() > 1 and name != "prototypes"
            groups.setdefault((part, decayed), []).append(parameter)
    device = model.prototypes.device
    settings: list[dict[str, Any]] = [
        {
            "params": parameters,
            "lr": torch.tensor(filled(config.learning_rate), device=device),
            "weight_decay": config.weight_decay if decayed else 0.0,
            "factor": config.predictor_lr if part == "predictor" else 1.0,
        }
        for (part, decayed), parameters in groups.items()
    ]
    if config.optimizer == "sgd":
        return torch.optim.SGD(settings, momentum=config.momentum, fused=True)
    rule = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return rule(settings, fused=True, capturable=device.type == "cuda")


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: Tensor) -> None:
    for group in optimizer.param_groups:
        group["lr"].copy_(learning_rate * group["factor"])


def tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state as named tensors, for a checkpoint without pickle."""
    state = optimizer.state_dict()["state"]
    return {f"{index}.{name}": value for index, entry in state.items() for name, value in entry.items()}


def load_tensors(optimizer: torch.optim.Optimizer, named: dict[str, Tensor]) -> None:
    """Restore what `tensors` gave."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in named.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    # The fused updates assume that a weight and its momenta have the same memory layout.
    for parameter, entry in optimizer.state.items():
        for name, value in entry.items():
            if value.shape == parameter.shape:
                entry[name] = torch.empty_like(parameter).copy_(value)
