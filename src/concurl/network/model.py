"""The networks of the method: online branch theta, its predictor, the prototypes, and the target branch xi.

x -> f_theta -> y -> g_theta -> v -> h_theta -> w        BYOL, online
                  \\-> g -> z, compared with C             clustering
x -> f_xi -> y -> g_xi -> v                              BYOL, target: an exponential average of theta
               \\-> its own g -> z                        clustering, where codes or prototypes come from the target
"""

from __future__ import annotations

import copy
import threading
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from concurl.config import Config, filled
from concurl.network.encoder import build_encoder

_SEEDING = threading.Lock()  # all threads draw weights from torch's one generator


class Embeddings(NamedTuple):
    """The outputs of a branch for a batch; only the online branch has w."""

    y: Tensor  # (B, num_features)
    v: Tensor  # (B, projector_dim)
    z: Tensor  # (B, embedding_dim)
    w: Tensor | None = None  # (B, projector_dim)


class Branch(nn.Module):
    """Encoder f, projector g_theta (or g_xi) and cluster head g."""

    def __init__(self, encoder: nn.Module, config: Config) -> None:
        super().__init__()
        self.encoder = encoder
        features = int(encoder.num_features)  # type: ignore[arg-type]
        self.projector = mlp(features, filled(config.projector_hidden), config.projector_dim)
        self.cluster_head = mlp(features, filled(config.cluster_hidden), config.embedding_dim)
        self.passes = config.n_views if config.batch_norm == "apart" else 1  # of a batch in training

    def forward(self, x: Tensor) -> Embeddings:
        y = self.through(self.encoder, x)
        return Embeddings(y, self.through(self.projector, y), self.through(self.cluster_head, y))

    def through(self, network: nn.Module, x: Tensor) -> Tensor:
        """What `network` makes of the rows of x, in training those of all views, the first view's before the second's.

        NOTE: the paper does not say whether batch norm sees all views together, in one pass, or each on its own, in a
        pass for each. The online branch, its predictor and the target do the same.
        """
        if self.passes == 1 or not network.training:
            return network(x)  # type: ignore[no-any-return]
        return torch.cat([network(view) for view in x.chunk(self.passes)])


class Model(nn.Module):
    """The online branch, its predictor and the prototypes, which are trained, and the target, which follows them.

    Weights on the device "meta" (of a model that is about to be loaded) are not drawn: torch would import its compiler for that.
    """

    def __init__(self, config: Config, encoder: nn.Module | None = None) -> None:
        super().__init__()
        if encoder is None:
            encoder = build_encoder(filled(config.encoder), stem=filled(config.stem), in_channels=config.channels)
        self.online = Branch(encoder, config)
        self.predictor = mlp(config.projector_dim, filled(config.projector_hidden), config.projector_dim)
        prototypes = torch.randn(config.n_clusters, config.embedding_dim)
        self.prototypes = nn.Parameter(prototypes if prototypes.is_meta else normalize(prototypes, dim=1))
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        for module in self.target.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.momentum = 0.0  # only `update_target` changes its running statistics

    def forward(self, x: Tensor) -> Embeddings:
        """The online branch with its prediction w."""
        online: Embeddings = self.online(x)
        return online._replace(w=self.online.through(self.predictor, online.v))

    @torch.no_grad()
    def update_target(self, tau_b: Tensor) -> None:
        """xi <- tau_B xi + (1 - tau_B) theta, for parameters and for the running statistics of batch norm.

        NOTE: the paper does not say what becomes of the target's batch norm. In training it normalises with its
        own batch; for evaluation its running statistics are the same average as its weights.
        """
        xi = [*self.target.parameters(), *_float_buffers(self.target)]
        theta = [*self.online.parameters(), *_float_buffers(self.online)]
        # Three foreach calls, because a lerp would fetch tau_b to the host in the middle of a step.
        move = torch._foreach_sub(theta, xi)
        torch._foreach_mul_(move, 1 - tau_b)
        torch._foreach_add_(xi, move)


def seeded_model(config: Config, encoder: nn.Module | None = None) -> Model:
    """A Model with weights drawn from the config's seed, whatever the caller drew before."""
    with _SEEDING, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.seed)  # torch.manual_seed would reset the caller's GPUs as well
        return Model(config, encoder)


def mlp(d_in: int, d_hidden: int, d_out: int) -> nn.Sequential:
    """Linear, batch norm, ReLU, linear: the form of g_theta, h_theta and g."""
    # The first layer needs no bias: batch norm would remove it.
    return nn.Sequential(
        nn.Linear(d_in, d_hidden, bias=False),
        nn.BatchNorm1d(d_hidden),
        nn.ReLU(inplace=True),
        nn.Linear(d_hidden, d_out),
    )


def _float_buffers(module: nn.Module) -> list[Tensor]:
    return [buffer for buffer in module.buffers() if buffer.is_floating_point()]
