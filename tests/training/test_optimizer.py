"""The update rule: who is decayed, how fast the predictor learns, one step by hand, and its state in a checkpoint."""

import copy

import pytest
import torch

from concurl.network.model import Model
from concurl.training.optimizer import load_tensors, make_optimizer, set_learning_rate, tensors


@pytest.fixture
def model(tiny):
    torch.manual_seed(0)
    return Model(tiny()).train()


def with_gradients(model, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.requires_grad:
            drawn = torch.randn(parameter.shape, generator=generator)
            parameter.grad = torch.empty_like(parameter).copy_(drawn)  # backward() lays it out as the weight, too
    return model


def by_name(model, optimizer):
    """name -> the group that holds the parameter."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {names[id(p)]: group for group in optimizer.param_groups for p in group["params"]}


@pytest.mark.parametrize("rule", ["adam", "adamw", "sgd"])
def test_everything_that_learns_is_in_one_group_and_the_target_in_none(tiny, model, rule):
    optimizer = make_optimizer(tiny(optimizer=rule), model)
    held = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert len(held) == len(set(held))
    assert set(held) == {id(p) for p in [*model.online.parameters(), *model.predictor.parameters(), model.prototypes]}


def test_decay_spares_biases_norms_and_prototypes(tiny, model):
    groups = by_name(model, make_optimizer(tiny(optimizer="adamw", weight_decay=0.3), model))
    norms = {name for name, module in model.named_modules() if "BatchNorm" in type(module).__name__}
    decayed = {name for name, group in groups.items() if group["weight_decay"] == 0.3}
    spared = {name for name, group in groups.items() if group["weight_decay"] == 0}
    assert decayed | spared == set(groups)
    for name in groups:
        owner, _, kind = name.rpartition(".")
        assert (name in spared) == (kind == "bias" or owner in norms or name == "prototypes"), name
    assert "online.encoder.stem.0.weight" in decayed
    assert "predictor.0.weight" in decayed


def test_only_the_models_own_head_waits_for_clustering(tiny):
    """Fused SGD wants all momenta of a group at once: a part of an encoder by that name would end the run."""
    encoder = torch.nn.Sequential(torch.nn.Flatten())
    encoder.add_module("cluster_head", torch.nn.Linear(3 * 8 * 8, 5))
    encoder.num_features = 5
    groups = by_name(model := Model(tiny(), encoder), make_optimizer(tiny(optimizer="sgd"), model))
    assert groups["online.encoder.cluster_head.weight"] is groups["online.projector.0.weight"]
    assert groups["online.cluster_head.0.weight"] is not groups["online.projector.0.weight"]


def test_decay_acts_and_spares_in_a_step(tiny, model):
    optimizer = make_optimizer(tiny(optimizer="sgd", weight_decay=0.5, learning_rate=0.1), model)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        decays = not name.startswith("target.") and parameter.dim() > 1 and name != "prototypes"
        torch.testing.assert_close(parameter.detach(), before[name] * (0.95 if decays else 1))


def test_the_predictors_factor_follows_the_schedule(tiny, model):
    optimizer = make_optimizer(tiny(optimizer="sgd", predictor_lr=10.0), model)
    set_learning_rate(optimizer, torch.tensor(0.02))
    for name, group in by_name(model, optimizer).items():
        assert float(group["lr"]) == pytest.approx(0.2 if name.startswith("predictor.") else 0.02)


def test_sgd_by_hand_over_two_steps(tiny, model):
    config = tiny(optimizer="sgd", momentum=0.8, weight_decay=0.1, predictor_lr=3.0)
    optimizer = make_optimizer(config, model)
    names = ["online.encoder.stem.0.weight", "predictor.3.weight", "prototypes", "online.projector.3.bias"]
    parameters = dict(model.named_parameters())
    p = {name: parameters[name].detach().double() for name in names}
    buffer = dict.fromkeys(names, 0.0)
    for step, rate in enumerate([0.05, 0.02]):
        with_gradients(model, seed=step)
        for name in names:
            g = parameters[name].grad.double()
            if name.endswith(".weight"):
                g = g + 0.1 * p[name]
            buffer[name] = 0.8 * buffer[name] + g
            p[name] = p[name] - rate * (3 if name.startswith("predictor") else 1) * buffer[name]
        set_learning_rate(optimizer, torch.tensor(rate))
        optimizer.step()
        for name in names:
            torch.testing.assert_close(parameters[name].detach().double(), p[name], rtol=1e-5, atol=1e-6)


def test_clusters_may_begin_to_learn_later(tiny, model):
    """Head and prototypes have no gradient until clustering begins, and their momenta none to begin with."""
    optimizer = make_optimizer(tiny(optimizer="sgd"), model)
    late = [*model.online.cluster_head.parameters(), model.prototypes]
    for parameter in (*with_gradients(model).online.parameters(), model.prototypes):
        if any(parameter is one for one in late):
            parameter.grad = None
    optimizer.step()
    before = [parameter.detach().clone() for parameter in late]
    with_gradients(model, seed=1)
    set_learning_rate(optimizer, torch.tensor(0.1))
    optimizer.step()
    for parameter, was in zip(late, before, strict=True):
        torch.testing.assert_close(parameter.detach(), was - 0.1 * parameter.grad)


@pytest.mark.parametrize("rule", ["adam", "adamw"])
def test_adam_by_hand(tiny, model, rule):
    optimizer = make_optimizer(tiny(optimizer=rule, weight_decay=0.1), model)
    parameter = model.online.projector[0].weight
    p, m, v = parameter.detach().double(), 0.0, 0.0
    for step, rate in enumerate([0.01, 0.003], start=1):
        with_gradients(model, seed=step)
        g = parameter.grad.double()
        if rule == "adam":
            g = g + 0.1 * p  # L2 in the gradient; AdamW decays the weights themselves
        else:
            p = p * (1 - rate * 0.1)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        p = p - rate * (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8)
        set_learning_rate(optimizer, torch.tensor(rate))
        optimizer.step()
        torch.testing.assert_close(parameter.detach().double(), p, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rule", ["adam", "adamw", "sgd"])
def test_state_goes_through_named_tensors(tiny, model, rule):
    config = tiny(optimizer=rule, weight_decay=0.1, predictor_lr=2.0)
    model.to(memory_format=torch.channels_last)  # as it is trained; a file has its tensors in plain order
    optimizer = make_optimizer(config, model)
    for step in range(3):
        with_gradients(model, seed=step)
        optimizer.step()
    named = {name: t.clone(memory_format=torch.contiguous_format) for name, t in tensors(optimizer).items()}
    assert named
    assert all(isinstance(t, torch.Tensor) for t in named.values())
    twin = copy.deepcopy(model)
    other = make_optimizer(config, twin)
    load_tensors(other, named)
    for both, rule_ in ((model, optimizer), (twin, other)):
        with_gradients(both, seed=9)
        set_learning_rate(rule_, torch.tensor(0.01))
        rule_.step()
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(mine, theirs)
