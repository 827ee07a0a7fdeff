"""A step: its loss against the paper's formulas in float64, its gradients, codes, update and target."""

import copy

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from concurl.errors import UserError
from concurl.network.model import Embeddings, Model
from concurl.objective.ensemble import draw_transforms
from concurl.objective.queue import EmbeddingQueue
from concurl.objective.sinkhorn import sinkhorn
from concurl.training.distributed import World
from concurl.training.optimizer import make_optimizer
from concurl.training.schedule import Schedule, Settings
from concurl.training.step import Step

B = 16
ABLATION = {
    "BYOL": (1, 0, 0),
    "soft clustering": (0, 1, 0),
    "consensus": (0, 0, 1),
    "BYOL + soft": (1, 1, 0),
    "ConCURL": (1, 1, 1),
}


def make_step(config, queue_size=0, autocast=None):
    torch.manual_seed(0)
    model = Model(config).train()
    with torch.no_grad():  # a target that is not the online branch
        for parameter in model.target.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    A = draw_transforms(config.transforms, config.n_transforms, config.embedding_dim, config.projection_dim, 0)
    queue = EmbeddingQueue(queue_size, config.embedding_dim, config.n_views)
    if queue_size:
        queue.fill(normalize(torch.randn(50, config.embedding_dim) + 1, dim=1))

    def views(images, ids, number):  # each image's views follow from pixels, id and step
        x = images.float() / 255 + 0.01 * ids.view(-1, 1, 1, 1) + 0.1 * number
        return (x, x.flip(3) * 0.9, x.flip(2) * 0.8)[: config.n_views]

    return Step(config, model, make_optimizer(config, model), A, queue, views, autocast)


def batch(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (B, 3, 8, 8), dtype=torch.uint8, generator=generator), torch.arange(B)


def settings(config, **changes):
    now = Settings(
        config.learning_rate, config.tau_b, config.alpha, config.beta, config.gamma, config.min_sureness
    )._replace(**changes)
    return Settings(*torch.tensor(now))


def swav_codes(scores, epsilon, iterations):
    Q = np.exp(scores.numpy() / epsilon)
    for _ in range(iterations):
        Q /= Q.sum(0, keepdims=True)
        Q /= Q.sum(1, keepdims=True)
    return torch.from_numpy(Q)


def plain_losses(step, x1, x2, code_branch="online"):
    """(L1, L2, L3) from equations 1 to 6 on the step's own networks, in float64."""
    c, model = step.config, copy.deepcopy(step.model).double()
    passes = [torch.cat([x1, x2])] if c.batch_norm == "joint" else [x1, x2]
    twin = Model(c.replace(batch_norm="joint")).double()
    twin.load_state_dict(model.state_dict())
    z, w = (torch.cat(parts) for parts in zip(*(twin(x.double())[2:] for x in passes), strict=True))
    target = Embeddings(*map(torch.cat, zip(*(twin.target(x.double())[:3] for x in passes), strict=True)))
    (w1, w2), (v1, v2) = (normalize(t.detach(), dim=1).chunk(2) for t in (w, target.v))
    code_z = (z if code_branch == "online" else target.z).detach().chunk(2)
    C = normalize(model.prototypes.detach(), dim=1)
    l1 = ((w1 - v2).square().sum(1) + (w2 - v1).square().sum(1)).mean()
    q1, q2 = (
        swav_codes(torch.cat([normalize(part, dim=1), queued.double()]) @ C.t(), c.epsilon, c.sinkhorn_iterations)[:B]
        for part, queued in zip(code_z, step.queue.entries, strict=True)
    )

    def cross_entropy(A):
        seen = normalize(model.prototypes.detach() @ A.t(), dim=1)
        p1, p2 = (
            torch.softmax(normalize(part @ A.t(), dim=1) @ seen.t() / c.tau, dim=1) for part in z.detach().chunk(2)
        )
        return -((q2 * p1.log()).sum() + (q1 * p2.log()).sum()) / (2 * B)

    l2 = cross_entropy(torch.eye(c.embedding_dim, dtype=torch.float64))
    members = [torch.diag(a).double() if step.A.dim() == 2 else a.double() for a in step.A]
    l3 = sum(cross_entropy(a) for a in members) / len(members)
    return l1.item(), l2.item(), l3.item()


@pytest.mark.parametrize("name", ABLATION)
@pytest.mark.parametrize("kind", ["projection", "diagonal"])
def test_loss_is_equation_7(tiny, name, kind):
    weights = ABLATION[name]
    config = tiny(transforms=kind, **dict(zip(("alpha", "beta", "gamma"), weights, strict=True)))
    step = make_step(config)
    x1, x2 = step.views(*batch(), torch.tensor(0))
    want = plain_losses(step, x1, x2)
    loss, *parts = step.losses((x1, x2), settings(config), config.clusters).tolist()
    for part, weight, expected in zip(parts, weights, want, strict=True):
        assert part == pytest.approx(expected if weight else 0, rel=1e-4)
    assert loss == pytest.approx(sum(weight * part for weight, part in zip(weights, want, strict=True)), rel=1e-4)


@pytest.mark.parametrize("branch", ["online", "target"])
def test_with_views_apart_the_loss_is_that_of_a_pass_for_each(tiny, branch):
    config = tiny(batch_norm="apart", codes_from=branch)
    step, joint = make_step(config), make_step(config.replace(batch_norm="joint"))
    x1, x2 = step.views(*batch(), torch.tensor(0))
    x2 = x2 * 2 - 1  # with statistics of its own
    want = plain_losses(step, x1, x2, branch)
    found = step.losses((x1, x2), settings(config), True).tolist()
    assert found == pytest.approx([sum(want), *want], rel=1e-4)
    together = joint.losses((x1, x2), settings(config), True).tolist()
    assert min(abs(a - b) for a, b in zip(found, together, strict=True)) > 1e-3


def test_the_schedules_weights_are_the_ones_used(tiny):
    config = tiny()
    step = make_step(config)
    x1, x2 = step.views(*batch(), torch.tensor(0))
    now = settings(config, alpha=0.3, beta=2.0, gamma=0.7)
    loss, l1, l2, l3 = step.losses((x1, x2), now, True).tolist()
    assert loss == pytest.approx(0.3 * l1 + 2 * l2 + 0.7 * l3, rel=1e-5)


def gradients(step, config, clustering):
    x1, x2 = step.views(*batch(), torch.tensor(0))
    step.losses((x1, x2), settings(config), clustering)[0].backward()
    return {name: p.grad for name, p in step.model.named_parameters() if p.grad is not None and p.grad.abs().max() > 0}


def test_each_loss_reaches_its_own_parts(tiny):
    def reached(clustering=True, **weights):
        config = tiny(**weights)
        found = gradients(make_step(config), config, clustering)
        assert not any(name.startswith("target.") for name in found)
        assert "online.encoder.stem.0.weight" in found
        heads = ("online.projector", "predictor", "online.cluster_head", "prototypes")
        return {head for head in heads if any(name.startswith(head) for name in found)}

    byol, clusters = {"online.projector", "predictor"}, {"online.cluster_head", "prototypes"}
    assert reached(alpha=1.0, beta=0.0, gamma=0.0, clustering=False) == byol
    assert reached(alpha=0.0, beta=1.0, gamma=0.0) == clusters
    assert reached(alpha=0.0, beta=0.0, gamma=1.0) == clusters
    assert reached(alpha=1.0, beta=1.0, gamma=1.0) == byol | clusters
    assert reached(alpha=1.0, beta=1.0, gamma=1.0, clustering=False) == byol


def test_before_clustering_only_l1_acts(tiny):
    config = tiny()
    step = make_step(config, queue_size=20)
    x1, x2 = step.views(*batch(), torch.tensor(0))
    before = step.queue.entries.clone()
    loss, l1, l2, l3 = step.losses((x1, x2), settings(config), False).tolist()
    assert loss == l1 > 0
    assert l2 == l3 == 0
    assert torch.equal(step.queue.entries, before)


def test_soft_clustering_alone_cannot_wait(tiny):
    """Before clusters start there is nothing to learn without L1: they start at once."""
    config = tiny(alpha=0.0, cluster_start=0.5)
    schedule = Schedule(config, 10)
    assert schedule.cluster_step == 0
    loss, l1, l2, l3 = make_step(config)(*batch(), torch.tensor(0), schedule.table(0, 1)[0], True).tolist()
    assert l1 == 0
    assert loss == pytest.approx(config.beta * l2 + config.gamma * l3)


def test_views_of_another_number_are_refused(tiny):
    step = make_step(tiny())
    step.views = lambda images, ids, number: [images.float()] * 3
    with pytest.raises(UserError, match="must give 2 tensors"):
        step(*batch(), torch.tensor(0), Schedule(step.config, 10).table(0, 1)[0], True)


def test_of_three_views_every_pair_counts_as_the_papers_two(tiny):
    """From one pass over the three: batch norm would see other batches in a pass over two."""
    config = tiny(n_views=3)
    step, pair = make_step(config, queue_size=8), make_step(tiny(), queue_size=8)
    views = step.views(*batch(), torch.tensor(0))
    online, target = (branch(torch.cat(views)) for branch in (step.model, step.model.target))
    parts = []
    for a, b in ((0, 1), (0, 2), (1, 2)):
        rows = torch.cat([torch.arange(B) + a * B, torch.arange(B) + b * B])
        pair.queue.load_state_dict({"entries": step.queue.entries[[a, b]], "position": step.queue.position})
        of_two = [type(e)(*(None if t is None else t[rows] for t in e)) for e in (online, target)]
        parts.append(pair.objective(*of_two, settings(config), True))
    assert len(views) == 3
    torch.testing.assert_close(step.objective(online, target, settings(config), True), torch.stack(parts).mean(0))
    assert step(*batch(), torch.tensor(0), torch.stack(settings(config)), True).isfinite().all()


# ---- the codes ---------------------------------------------------------------------------------------------


def test_codes_come_from_the_branch_asked_for(tiny):
    found = {}
    for branch in ("online", "target"):
        config = tiny(codes_from=branch, alpha=0.0)
        step = make_step(config)
        x1, x2 = step.views(*batch(), torch.tensor(0))
        want = plain_losses(step, x1, x2, branch)
        found[branch] = step.losses((x1, x2), settings(config), True)[2:].tolist()
        assert found[branch] == pytest.approx(want[1:], rel=1e-4)
    assert abs(found["online"][0] - found["target"][0]) > 1e-3


@pytest.mark.parametrize(
    ("alpha", "branch", "passes"), [(1.0, "online", 1), (0.0, "target", 1), (1.0, "target", 1), (0.0, "online", 0)]
)
def test_the_target_is_passed_through_only_where_a_loss_needs_it(tiny, alpha, branch, passes):
    config, seen = tiny(alpha=alpha, codes_from=branch), []
    step = make_step(config)
    step.model.target.register_forward_hook(lambda *_: seen.append(1))
    losses = step(*batch(), torch.tensor(0), torch.stack(settings(config)), True)
    assert len(seen) == passes
    assert losses.isfinite().all()


def test_the_queue_joins_the_balance_and_then_takes_the_batch(tiny):
    config = tiny(alpha=0.0)
    step, without = make_step(config, queue_size=40), make_step(config)
    x1, x2 = step.views(*batch(), torch.tensor(0))
    want = plain_losses(step, x1, x2)
    z1, z2 = normalize(copy.deepcopy(step.model)(torch.cat([x1, x2])).z.detach(), dim=1).chunk(2)
    old = step.queue.entries.clone()
    found = step.losses((x1, x2), settings(config), True)[2:].tolist()
    assert found == pytest.approx(want[1:], rel=1e-4)
    assert abs(found[0] - without.losses((x1, x2), settings(config), True)[2].item()) > 1e-3
    torch.testing.assert_close(step.queue.entries[:, :B], torch.stack([z1, z2]), rtol=1e-4, atol=1e-5)
    assert torch.equal(step.queue.entries[:, B:], old[:, B:])


def test_a_rank_balances_its_images_with_its_part_of_the_queue(tiny, monkeypatch):
    step = make_step(tiny(), queue_size=41)
    monkeypatch.setattr(World, "log_reduce", lambda world, x: x)  # no other rank is there to be asked
    monkeypatch.setattr(World, "gather", lambda world, x: x)
    z = torch.randn(2, B, 8, generator=torch.Generator().manual_seed(0))
    seen = torch.cat([normalize(z, dim=-1), step.queue.entries[:, 1::3]], dim=1)
    step.world = World(rank=1, size=3)
    C = normalize(step.model.prototypes.detach(), dim=1)
    want, _ = sinkhorn(seen @ C.t(), step.config.epsilon, step.config.sinkhorn_iterations)
    torch.testing.assert_close(step.codes(z), want[:, :B])


def test_each_view_is_balanced_on_its_own(tiny):
    step = make_step(tiny(sinkhorn_iterations=500))
    z = torch.randn(2, B, 8, generator=torch.Generator().manual_seed(0))
    z[1] += 2 * step.model.prototypes.detach()[0]  # without balance view 2 would prefer cluster 0
    for q in step.codes(z):
        assert not q.requires_grad
        torch.testing.assert_close(q.mean(0), torch.full((4,), 0.25), rtol=0, atol=1e-3)


def test_without_balance_a_code_is_the_images_own(tiny):
    z = torch.randn(2, B, 8, generator=torch.Generator().manual_seed(0))
    step = make_step(tiny(balance=0))
    scores = normalize(z, dim=-1) @ normalize(step.model.prototypes.detach(), dim=1).t()
    torch.testing.assert_close(step.codes(z), torch.softmax(scores / step.config.epsilon, dim=-1))
    half = make_step(tiny(balance=0.5)).codes(z)
    torch.testing.assert_close(half, sinkhorn(scores, step.config.epsilon, 3, balance=0.5)[0])


def test_codes_see_only_directions(tiny):
    step = make_step(tiny())
    z = torch.randn(2, B, 8, generator=torch.Generator().manual_seed(0))
    first = step.codes(z)
    with torch.no_grad():
        step.model.prototypes.mul_(5)
    torch.testing.assert_close(step.codes(z * torch.tensor([3, 0.1])[:, None, None]), first, rtol=1e-3, atol=1e-5)


# ---- which images are heard -------------------------------------------------------------------------------


@pytest.mark.parametrize("branch", ["online", "target"])
def test_images_that_the_ensemble_is_unsure_of_train_no_network_through_the_clusters(tiny, branch):
    """Against a loop over the images that leaves them out; the losses and the prototypes' gradients are those of all."""
    config = tiny(alpha=0.0, beta=0.7, gamma=1.3, codes_from=branch, min_sureness=0.5)  # 0.5: any value above 0
    step, everyone = make_step(config), make_step(config.replace(min_sureness=0.0))
    x = torch.cat(step.views(*batch(), torch.tensor(0)))
    c, A, C = config, step.A, normalize(step.model.prototypes.detach(), dim=1)
    source = (step.model if branch == "online" else step.model.target)(x).z.detach()
    q = step.codes(source.view(2, B, -1))

    def member(z, a):
        return torch.softmax(normalize(a @ z, dim=0) @ normalize(C @ a.t(), dim=1).t() / c.tau, dim=0)

    vote = torch.stack([sum(member(z, a) for a in A) / len(A) for z in source]).view(2, B, -1)

    def sureness(p, k):
        return (p[k] / (p[k] + max(x for j, x in enumerate(p) if j != k))).item()

    sure = [sum(sureness(vote[v, i], q[v, i].argmax()) for v in (0, 1)) / 2 for i in range(B)]
    least = (sorted(sure)[5] + sorted(sure)[6]) / 2  # six of the sixteen are below it
    assert sorted(sure)[6] - sorted(sure)[5] > 1e-5

    now = settings(config, min_sureness=least)
    losses = step.losses(x.chunk(2), now, True)
    torch.testing.assert_close(losses, everyone.losses(x.chunk(2), settings(config), True))
    losses[0].backward()
    everyone.losses(x.chunk(2), settings(config), True)[0].backward()
    torch.testing.assert_close(step.model.prototypes.grad, everyone.model.prototypes.grad)

    network = copy.deepcopy(step.model.online).requires_grad_()
    network.zero_grad()
    z1, z2 = network(x).z.chunk(2)
    total = 0.0
    for i in [i for i in range(B) if sure[i] >= least]:
        for a, weight in [(torch.eye(c.embedding_dim), c.beta), *((a, c.gamma / len(A)) for a in A)]:
            p1, p2 = member(z1[i], a), member(z2[i], a)
            total = total - weight * (q[1, i] @ p1.log() + q[0, i] @ p2.log()) / (2 * B)
    total.backward()
    for (name, found), want in zip(step.model.online.named_parameters(), network.parameters(), strict=True):
        if not name.startswith("projector"):
            torch.testing.assert_close(
                found.grad, want.grad, rtol=1e-3, atol=3e-5, msg=lambda text, name=name: f"{name}: {text}"
            )


# ---- the whole step ----------------------------------------------------------------------------------------


def test_one_step_of_sgd_by_hand(tiny):
    config = tiny(optimizer="sgd", momentum=0.9, weight_decay=0.2, predictor_lr=10.0, tau_b=0.9)
    step = make_step(config)
    images, ids = batch()
    rate, number = 0.05, torch.tensor(3)
    twin = copy.deepcopy(step.model)
    probe = Step(config, twin, step.optimizer, step.A, EmbeddingQueue(0, 8), step.views, None)
    losses = probe.losses(step.views(images, ids, number), settings(config), True)
    losses[0].backward()
    took = step(images, ids, number, torch.stack(list(settings(config, learning_rate=rate))), True)
    assert not took.requires_grad
    torch.testing.assert_close(took, losses.detach())
    after = dict(step.model.named_parameters())
    for name, before in twin.named_parameters():
        if name.startswith("target."):
            theta = after[name.replace("target.", "online.", 1)]
            want = 0.9 * before + 0.1 * theta  # the target follows the weights after the update
        else:
            decay = 0.2 if before.dim() > 1 and name != "prototypes" else 0.0
            want = before - rate * (10 if name.startswith("predictor.") else 1) * (before.grad + decay * before)
        torch.testing.assert_close(after[name].detach(), want.detach(), rtol=1e-4, atol=1e-6, msg=name)
    assert all(p.grad is None or p.grad.abs().max() == 0 for p in step.model.parameters())


def test_steps_do_not_carry_gradients_over(tiny):
    config = tiny(optimizer="sgd", momentum=0.0)
    step, row = make_step(config), torch.stack(list(settings(config, learning_rate=0.0, tau_b=1.0)))
    first = step(*batch(), torch.tensor(0), row, True)
    again = step(*batch(), torch.tensor(0), row, True)
    torch.testing.assert_close(first, again)  # a rate of 0 and a tau_b of 1 leave everything in place
    other = step(*batch(), torch.tensor(1), row, True)
    assert not torch.allclose(first, other)  # the views were given the step's number


@pytest.mark.parametrize("name", ABLATION)
def test_some_steps_lower_the_loss(tiny, name):
    config = tiny(
        learning_rate=3e-3, tau_b=1.0, **dict(zip(("alpha", "beta", "gamma"), map(float, ABLATION[name]), strict=True))
    )
    step, row = make_step(config), torch.stack(list(settings(config)))
    losses = [step(*batch(), torch.tensor(0), row, config.clusters)[0].item() for _ in range(30)]
    assert losses[-1] < 0.7 * losses[0]


def test_autocast_keeps_the_losses_in_float32(tiny):
    config = tiny()
    half, full = make_step(config, autocast=torch.bfloat16), make_step(config)
    x1, x2 = full.views(*batch(), torch.tensor(0))
    a, b = (step.losses((x1, x2), settings(config), True) for step in (half, full))
    assert a.dtype == torch.float32
    assert not torch.equal(a, b)
    torch.testing.assert_close(a, b, rtol=0.1, atol=0.1)


def test_an_autocast_around_the_training_does_not_hold_the_weights_of_its_first_step(tiny):
    """Autocast keeps the weights it has cast until the outermost one ends; the estimator has one around all it does."""
    config = tiny(learning_rate=0.01)

    def losses():
        step, row = make_step(config, autocast=torch.bfloat16), torch.stack(list(settings(config)))
        return torch.stack([step(*batch(), torch.tensor(0), row, True) for _ in range(3)])

    alone = losses()
    with torch.autocast("cpu", enabled=False):
        assert torch.equal(losses(), alone)


def test_of_the_losses_only_the_members_products_are_in_half_precision(tiny):
    config = tiny()
    half, full = make_step(config, autocast=torch.bfloat16), make_step(config)
    x = torch.cat(full.views(*batch(), torch.tensor(0)))
    online, target = full.model(x), full.model.target(x)
    a, b = (step.objective(online, target, settings(config), True) for step in (half, full))
    assert torch.equal(a[1:3], b[1:3])
    assert a[3] != b[3]
    torch.testing.assert_close(a[3], b[3], rtol=0.02, atol=0)
