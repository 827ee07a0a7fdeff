"""Shows how to use your own encoder: any nn.Module with `num_features` that maps images to vectors.

    python examples/own_encoder.py            # a small network on handwritten digits; about a minute on a laptop

Every timm model meets this contract, with or without pretrained weights:

    encoder = timm.create_model("convnext_atto", pretrained=True, num_classes=0)   # pip install timm
    ConCURL(n_clusters=10, encoder=encoder, options={"image_size": 128}).fit("PHOTOS")

Those that take images of one size only, as vision transformers do, need {"view_scale": 1} as well.
"""

import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from concurl import ConCURL


class SmallNet(nn.Module):
    """Images (B, 3, S, S), normalised with ImageNet's mean and deviation, to vectors (B, num_features)."""

    num_features = 96

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 32, 64, self.num_features)
        self.layers = nn.Sequential(
            *(
                nn.Sequential(nn.Conv2d(a, b, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU())
                for a, b in pairwise(widths)
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.layers(x)
        return features.mean(dim=(2, 3))


epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 60
images = load_digits().images / 16

torch.manual_seed(0)  # random_state does not reach the weights of a network that you give: seed them yourself
model = ConCURL(n_clusters=10, recipe="digits", encoder=SmallNet(), options={"epochs": epochs}).fit(images)
print(f"{len(images)} images, sizes of the clusters: {np.bincount(model.labels_, minlength=10).tolist()}")
print(f"mean agreement of the ensemble: {model.agreement_.mean():.3f}")

with tempfile.TemporaryDirectory() as folder:
    model.save(Path(folder) / "model")
    # The folder holds the weights, not the code: give a network of the same shape to load them into.
    again = ConCURL.load(Path(folder) / "model", encoder=SmallNet())
assert (again.predict(images) == model.labels_).all()
print("saved and loaded: the same labels")
