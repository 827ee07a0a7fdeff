"""The encoders: against published sizes, and against a ResNet written with nothing but torch's functions."""

import pytest
import torch
from torch.nn import functional as F

from concurl.network.encoder import build_encoder

PUBLISHED = {"resnet18": 11_176_512, "resnet34": 21_284_672, "resnet50": 23_508_032}  # without classifier
DEPTHS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3), "tiny": (1, 1)}
FEATURES = {"resnet18": 512, "resnet34": 512, "resnet50": 2048, "tiny": 64}


def plain_resnet(x, w, depths, stem):
    """He et al. 2016 in evaluation mode, from a dictionary of weights."""

    def conv(x, name, stride=1):
        return F.conv2d(x, w[f"{name}.weight"], stride=stride, padding=w[f"{name}.weight"].shape[-1] // 2)

    def norm(x, name):
        scale, shift, mean, variance = (
            w[f"{name}.{part}"].view(1, -1, 1, 1) for part in ("weight", "bias", "running_mean", "running_var")
        )
        return (x - mean) / torch.sqrt(variance + 1e-5) * scale + shift

    x = norm(conv(x, "stem.0", 2 if stem == "large" else 1), "stem.1").clamp(min=0)
    if stem == "large":
        x = F.max_pool2d(x, 3, stride=2, padding=1)
    index = 0
    for stage, depth in enumerate(depths):
        for block in range(depth):
            name, stride = f"stages.{index}", 2 if stage > 0 and block == 0 else 1
            if f"{name}.conv3.weight" in w:
                out = norm(conv(x, f"{name}.conv1"), f"{name}.bn1").clamp(min=0)
                out = norm(conv(out, f"{name}.conv2", stride), f"{name}.bn2").clamp(min=0)
                out = norm(conv(out, f"{name}.conv3"), f"{name}.bn3")
            else:
                out = norm(conv(x, f"{name}.conv1", stride), f"{name}.bn1").clamp(min=0)
                out = norm(conv(out, f"{name}.conv2"), f"{name}.bn2")
            if f"{name}.shortcut.0.weight" in w:
                x = norm(conv(x, f"{name}.shortcut.0", stride), f"{name}.shortcut.1")
            x = (out + x).clamp(min=0)
            index += 1
    return x.mean((2, 3))


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_parameter_counts(name):
    with torch.device("meta"):  # shapes without numbers
        encoder = build_encoder(name, stem="large")
    assert sum(p.numel() for p in encoder.parameters()) == PUBLISHED[name]
    assert encoder.num_features == FEATURES[name]


@pytest.mark.parametrize(
    ("name", "stem"),
    [("resnet18", "large"), ("resnet18", "small"), ("resnet34", "large"), ("resnet50", "large"), ("tiny", "small")],
)
def test_forward_equals_plain_functions(name, stem):
    torch.manual_seed(0)
    encoder = build_encoder(name, stem=stem).double().eval()
    for module in encoder.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.normal_(module.running_mean, std=0.1)
            torch.nn.init.uniform_(module.running_var, 0.5, 2)
            torch.nn.init.uniform_(module.weight, 0.2, 0.6)  # keeps the deep ones from exploding
            torch.nn.init.normal_(module.bias, std=0.1)
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    with torch.no_grad():
        y = encoder(x)
        want = plain_resnet(x, encoder.state_dict(), DEPTHS[name], stem)
    assert y.shape == (2, encoder.num_features) == (2, FEATURES[name])
    assert y.std() > 1e-3
    torch.testing.assert_close(y, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("stem", "shrink"), [("large", 4), ("small", 1)])
@pytest.mark.parametrize("side", [32, 96])
def test_stem_sets_the_resolution(stem, shrink, side):
    with torch.device("meta"):
        encoder = build_encoder("resnet18", stem=stem).eval()
        x = encoder.stem(torch.zeros(1, 3, side, side))
        assert x.shape == (1, 64, side // shrink, side // shrink)
        assert encoder.stages(x).shape == (1, 512, side // shrink // 8, side // shrink // 8)


@pytest.mark.parametrize(("name", "stem"), [("resnet18", "large"), ("resnet18", "small"), ("tiny", "small")])
def test_two_channels_after_sobel(name, stem):
    encoder = build_encoder(name, stem=stem, in_channels=2)
    assert encoder.stem[0].weight.shape[1] == 2
    assert encoder(torch.randn(2, 2, 32, 32)).shape == (2, encoder.num_features)


def test_convolutions_start_as_he_et_al():
    torch.manual_seed(0)
    for name, module in build_encoder("resnet18", stem="large").named_modules():
        if isinstance(module, torch.nn.Conv2d):
            fan_out = module.out_channels * module.kernel_size[0] ** 2
            assert module.bias is None
            assert module.weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.05), name
