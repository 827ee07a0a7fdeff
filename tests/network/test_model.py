"""The networks of the method: the target's average, its batch norm, and the heads, against plain formulas."""

import copy

import pytest
import torch
from torch import nn

from concurl.config import Config
from concurl.network.model import Model


class Flat(nn.Module):
    """An encoder from outside: all that is asked of it is num_features."""

    num_features = 5

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3 * 8 * 8, 5)
        self.norm = nn.BatchNorm1d(5)

    def forward(self, x):
        return self.norm(self.linear(x.flatten(1)))


@pytest.fixture
def model(tiny):
    torch.manual_seed(0)
    return Model(tiny()).train()


def floats(module):
    """Parameters and running statistics, by name, in float64."""
    return {name: t.detach().double().clone() for name, t in module.state_dict().items() if t.is_floating_point()}


def images(n=16, seed=0):
    return torch.randn(n, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def test_target_is_the_exponential_average_over_ten_steps(model):
    plain = floats(model.target)
    assert any("running_var" in name for name in plain)
    first = dict(plain)
    for step in range(10):
        tau_b = 0.9 + 0.005 * step
        model(images(seed=step))  # moves the running statistics of the online branch
        with torch.no_grad():
            for parameter in model.online.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape))
        model.update_target(torch.tensor(tau_b))
        theta = floats(model.online)
        plain = {name: tau_b * xi + (1 - tau_b) * theta[name] for name, xi in plain.items()}
    for name, xi in floats(model.target).items():
        assert not torch.allclose(xi, first[name]), name
        torch.testing.assert_close(xi, plain[name], rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize(("tau_b", "source"), [(1.0, "target"), (0.0, "online")])
def test_the_ends_of_tau_b(model, tau_b, source):
    model(images())
    with torch.no_grad():
        for parameter in model.online.parameters():
            parameter.add_(1)
    want = floats(getattr(model, source))
    model.update_target(torch.tensor(tau_b))
    for name, xi in floats(model.target).items():
        torch.testing.assert_close(xi, want[name], rtol=0, atol=1e-6)


def test_target_starts_as_a_copy_of_its_own(model):
    online, target = model.online.state_dict(), model.target.state_dict()
    assert online.keys() == target.keys()
    for name in online:
        assert torch.equal(online[name], target[name])
        assert online[name].data_ptr() != target[name].data_ptr()


def test_target_gets_no_gradient(model):
    x = images()
    model.update_target(torch.tensor(0.5))  # from weights that have one
    y, v, z, _ = model.target(x)
    assert not any(t.requires_grad for t in (y, v, z))
    online = model(x)
    (online.w.square().sum() + online.z.square().sum() + (v * online.v).sum()).backward()
    assert all(p.grad is None for p in model.target.parameters())
    assert all(p.grad is not None for p in model.online.parameters())
    assert all(p.grad is not None for p in model.predictor.parameters())


def test_targets_running_statistics_come_from_the_average_alone(model):
    before = floats(model.target)
    model.target(images())
    after = floats(model.target)
    assert all(torch.equal(before[name], after[name]) for name in before)
    mean = model.online.encoder.stem[1].running_mean
    before = mean.clone()
    model(images())
    assert not torch.equal(mean, before)


def test_target_in_training_normalises_with_its_own_batch(model):
    x = images()
    want = model.target(x)
    with torch.no_grad():
        for name, buffer in model.target.named_buffers():
            if "running_mean" in name:
                buffer.fill_(100.0)
    for got, expected in zip(model.target(x)[:3], want[:3], strict=True):
        assert torch.equal(got, expected)
    for got, expected in zip(model.online(x)[:3], want[:3], strict=True):
        torch.testing.assert_close(got, expected)  # as the online branch does
    model.eval()
    assert not torch.allclose(model.target(x).v, want.v)


@pytest.mark.parametrize("n_views", [2, 3])
def test_views_apart_are_passes_of_their_own(tiny, n_views):
    """Outputs, gradients and statistics of a pass for each view, which with one pass for all are others."""
    torch.manual_seed(0)
    model = Model(tiny(n_views=n_views, batch_norm="apart")).double().train()
    joint = Model(tiny(n_views=n_views)).double().train()
    joint.load_state_dict(model.state_dict())
    plain = copy.deepcopy(joint)
    views = [images(seed=v).double() * (1 + v) + v for v in range(n_views)]  # views that look different

    def trained(model, passes):
        """(outputs of both branches, gradients), all rows of the first view first."""
        seen = [(*model(x), *model.target(x)[:3]) for x in passes]
        outputs = [torch.cat(parts) for parts in zip(*seen, strict=True)]
        sum(t.sin().sum() for t in outputs if t.requires_grad).backward()
        return outputs, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}

    found, want, together = (
        trained(model, [torch.cat(views)]),
        trained(plain, views),
        trained(joint, [torch.cat(views)]),
    )
    assert (
        found[1].keys()
        == want[1].keys()
        == dict(model.named_parameters()).keys()
        - {
            "prototypes",
            *(f"target.{name}" for name, _ in model.target.named_parameters()),
        }
    )
    torch.testing.assert_close(found, want)
    torch.testing.assert_close(model.state_dict(), plain.state_dict())
    for got, other in zip(found[0], together[0], strict=True):
        assert not torch.allclose(got, other, rtol=1e-2)
    norm = "online.encoder.stem.1.running_var"
    assert not torch.allclose(model.state_dict()[norm], joint.state_dict()[norm], rtol=1e-2)

    joint.load_state_dict(model.state_dict())
    x = images(n=5).double()  # evaluation knows no views
    assert all(torch.equal(a, b) for a, b in zip(model.eval()(x), joint.eval()(x), strict=True))
    assert torch.equal(model.target(x).v, joint.target(x).v)


def test_heads_are_linear_norm_relu_linear(model):
    x = images()
    for _ in range(20):
        model(x)  # running statistics that are not 0 and 1
    model.double().eval()
    y, v, z, w = model(x.double())

    def plain(head, h):
        first, norm, last = head[0], head[1], head[3]
        h = h @ first.weight.t()
        h = (h - norm.running_mean) / torch.sqrt(norm.running_var + norm.eps) * norm.weight + norm.bias
        return h.clamp(min=0) @ last.weight.t() + last.bias

    torch.testing.assert_close(y, model.online.encoder(x.double()))
    torch.testing.assert_close(v, plain(model.online.projector, y))
    torch.testing.assert_close(z, plain(model.online.cluster_head, y))
    torch.testing.assert_close(w, plain(model.predictor, v))
    assert model.target(x.double()).w is None


def test_the_papers_sizes():
    with torch.device("meta"):
        model = Model(Config(), Flat())
    shapes = {
        name: [tuple(module.weight.shape) for module in head if isinstance(module, nn.Linear)]
        for name, head in (
            ("projector", model.online.projector),
            ("predictor", model.predictor),
            ("cluster", model.online.cluster_head),
        )
    }
    assert shapes == {
        "projector": [(4096, 5), (256, 4096)],
        "predictor": [(4096, 256), (256, 4096)],
        "cluster": [(2048, 5), (256, 2048)],
    }
    assert model.prototypes.shape == (10, 256)


def test_prototypes_start_as_unit_vectors_and_are_learned(model):
    torch.testing.assert_close(model.prototypes.norm(dim=1), torch.ones(4))
    assert model.prototypes.requires_grad
    assert not any("prototypes" in name for name, _ in model.target.named_parameters())


def test_any_encoder_with_num_features(tiny):
    torch.manual_seed(0)
    encoder = Flat()
    model = Model(tiny(), encoder).train()
    assert model.online.encoder is encoder
    y, v, z, w = model(images())
    assert [tuple(t.shape) for t in (y, v, z, w)] == [(16, 5), (16, 12), (16, 8), (16, 12)]
    before = floats(model.target)
    model.update_target(torch.tensor(0.5))
    mean = floats(model.online)["encoder.norm.running_mean"]
    torch.testing.assert_close(floats(model.target)["encoder.norm.running_mean"], mean / 2)
    assert torch.equal(floats(model.target)["encoder.linear.weight"], before["encoder.linear.weight"])


def test_sobel_gives_the_encoder_two_channels(tiny):
    assert Model(tiny(sobel=True)).online.encoder.stem[0].weight.shape[1] == 2
    assert Model(tiny()).online.encoder.stem[0].weight.shape[1] == 3


def test_a_copy_trains_apart(model):
    twin = copy.deepcopy(model)
    twin.update_target(torch.tensor(0.0))
    with torch.no_grad():
        twin.online.encoder.stem[0].weight.zero_()
    assert model.online.encoder.stem[0].weight.abs().sum() > 0
