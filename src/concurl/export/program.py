"""The model as one torch.export program: uint8 images in; labels, codes and embeddings out."""

from __future__ import annotations

import copy
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize

from concurl.atomic import write_whole
from concurl.clustering.assign import assign, scores_and_codes
from concurl.errors import RunError
from concurl.network.trained import TrainedModel
from concurl.views.views import evaluation_view

CHECKED = 256  # images, at most, that a program must label as the model does before it is written


class Labeller(nn.Module):
    """Preprocessing, encoder, head and label in one module: uint8 (B, 3, H, W) -> (labels, q, embeddings)."""

    centres: Tensor
    scalings: Tensor

    def __init__(self, trained: TrainedModel) -> None:
        super().__init__()
        branch = trained.model.online if trained.space == "z" else trained.model.target
        head = branch.cluster_head if trained.space == "z" else branch.projector
        self.encoder, self.head = copy.deepcopy(branch.encoder), copy.deepcopy(head)
        self.requires_grad_(False)
        for tensor in (*self.parameters(), *self.buffers()):  # torch.export warns about weights in channels-last layout
            tensor.data = tensor.data.contiguous()
        self.image_size, self.sobel, self.epsilon = trained.image_size, trained.config.sobel, trained.config.epsilon
        self.register_buffer("centres", trained.centres.double())
        self.register_buffer("scalings", trained.scalings.double())

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = normalize(self.head(self.encoder(evaluation_view(images, self.image_size, self.sobel))), dim=1)
        _, q = scores_and_codes(x, self.centres, self.scalings, self.epsilon)
        return q.argmax(1), q, x


def export_program(trained: TrainedModel, images: NDArray[np.uint8], output: Path) -> int:
    """Write the program once it has given the model's own labels for some of the images; returns how many."""
    some = np.array(images[:CHECKED])
    labeller = Labeller(trained).eval()
    batch = torch.export.Dim("batch", min=1, max=65_536)
    example = torch.from_numpy(np.concatenate([some, some])[: max(2, len(some))])
    program = torch.export.export(labeller, (example,), dynamic_shapes=({0: batch},))
    labels = program.module()(torch.from_numpy(some))[0].numpy()
    wanted = assign(replace(trained, autocast=None), some).labels  # in float32, as the program computes
    if not np.array_equal(labels, wanted):
        raise RunError(f"the exported program labels {int((labels != wanted).sum())} of {len(some)} images differently")
    content = io.BytesIO()
    torch.export.save(program, content)
    write_whole(output, content.getvalue())
    return len(some)
