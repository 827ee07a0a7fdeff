"""The ensemble and its losses: against loops written from the paper's formulas in float64."""

import itertools
import math

import pytest
import torch
from sklearn.metrics import normalized_mutual_info_score
from torch.nn.functional import normalize

from concurl.objective.ensemble import (
    diversity,
    draw_transforms,
    ensemble_log_assignments,
    log_assignments,
    transform,
)
from concurl.objective.losses import swapped_loss

M, B, K, DIM, PROJECTION = 5, 6, 4, 8, 3
TAU = 0.1


def draw(kind="projection", seed=0):
    return draw_transforms(kind, M, DIM, PROJECTION, seed)


def batch(seed=0):
    """z1, z2 (B, DIM), C (K, DIM) and codes q1, q2 (B, K)."""
    generator = torch.Generator().manual_seed(seed)
    z1, z2, C = (3 * torch.randn(n, DIM, generator=generator) for n in (B, B, K))
    q1, q2 = (torch.softmax(3 * torch.randn(B, K, generator=generator), dim=1) for _ in range(2))
    return z1, z2, C, q1, q2


def matrices(A):
    """Every transformation as the matrix that the paper multiplies with, float64."""
    return [torch.diag(a).double() if A.dim() == 2 else a.double() for a in A]


def plain_p(z, C, A, i, j):
    """p~_ij of one member (eq. 3 on A z and A c)."""

    def unit(x):
        return x / (x * x).sum().sqrt()

    weights = [torch.exp(unit(A @ z[i]) @ unit(A @ c) / TAU) for c in C]
    return weights[j] / sum(weights)


def plain_loss(z1, z2, C, q1, q2, members):
    """Eq. 6 as it stands; with one identity matrix, eq. 5."""
    total = 0
    for i, A, j in itertools.product(range(len(z1)), members, range(len(C))):
        total = total - q2[i, j] * torch.log(plain_p(z1, C, A, i, j))
        total = total - q1[i, j] * torch.log(plain_p(z2, C, A, i, j))
    return total / (2 * len(z1) * len(members))


def with_gradients(loss, *leaves):
    leaves = [leaf.clone().requires_grad_() for leaf in leaves]
    value = loss(*leaves)
    return value.detach(), torch.autograd.grad(value, leaves)


@pytest.mark.parametrize("kind", ["projection", "diagonal"])
def test_consensus_loss_equals_a_loop_over_members(kind):
    z1, z2, C, q1, q2 = batch()
    A = draw(kind)

    def batched(z1, z2, C):
        log_pm1, log_pm2 = (ensemble_log_assignments(z, C, A, TAU) for z in (z1, z2))
        assert log_pm1.shape == (M, B, K)
        return swapped_loss(log_pm1, log_pm2, q1, q2)

    def loop(z1, z2, C):
        return plain_loss(z1, z2, C, q1.double(), q2.double(), matrices(A))

    value, gradients = with_gradients(batched, z1, z2, C)
    want, wanted = with_gradients(loop, z1.double(), z2.double(), C.double())
    torch.testing.assert_close(value.double(), want, rtol=1e-6, atol=1e-6)
    for got, expected in zip(gradients, wanted, strict=True):
        assert expected.abs().max() > 1e-2
        torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-6)


def test_soft_clustering_loss_equals_a_loop():
    z1, z2, C, q1, q2 = batch(1)
    value, gradients = with_gradients(
        lambda z1, z2, C: swapped_loss(log_assignments(z1, C, TAU), log_assignments(z2, C, TAU), q1, q2), z1, z2, C
    )
    want, wanted = with_gradients(
        lambda z1, z2, C: plain_loss(z1, z2, C, q1.double(), q2.double(), [torch.eye(DIM, dtype=torch.float64)]),
        *(x.double() for x in (z1, z2, C)),
    )
    torch.testing.assert_close(value.double(), want, rtol=1e-6, atol=1e-6)
    for got, expected in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "members",
    [torch.eye(DIM)[None], torch.ones(1, DIM), draw_transforms("projection", M, DIM, DIM, 0)],
    ids=["identity", "diagonal of ones", "rotations"],
)
def test_l2_is_l3_with_members_that_change_no_angle(members):
    """A projection to as many dimensions as there are is a rotation: members then have nothing to disagree about."""
    z1, z2, C, q1, q2 = batch(2)
    l2 = swapped_loss(log_assignments(z1, C, TAU), log_assignments(z2, C, TAU), q1, q2)
    l3 = swapped_loss(*(ensemble_log_assignments(z, C, members, TAU) for z in (z1, z2)), q1, q2)
    torch.testing.assert_close(l3, l2, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("members", [None, draw(), draw("diagonal")], ids=["L2", "L3 projection", "L3 diagonal"])
def test_prototypes_learn_and_codes_do_not(members):
    z1, z2, C, q1, q2 = batch(3)
    leaves = [x.requires_grad_() for x in (z1, z2, C, q1, q2)]
    log_p1, log_p2 = (
        log_assignments(z, C, TAU) if members is None else ensemble_log_assignments(z, C, members, TAU)
        for z in (z1, z2)
    )
    gradients = torch.autograd.grad(swapped_loss(log_p1, log_p2, q1, q2), leaves, allow_unused=True)
    for gradient in gradients[:3]:
        assert (gradient.norm(dim=1) > 1e-4).all()  # every image and every prototype
    assert gradients[3] is None
    assert gradients[4] is None


def test_assignments_are_probabilities_that_see_only_directions():
    z, _, C, _, _ = batch()
    log_p = log_assignments(z, C, TAU)
    torch.testing.assert_close(log_p.exp().sum(1), torch.ones(B))
    torch.testing.assert_close(log_assignments(7 * z, 0.1 * C, TAU), log_p, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(log_assignments(z, C, 2 * TAU), log_p)


def test_half_precision_embeddings_are_scored_in_full():
    z, _, C, _, _ = batch()
    for dtype in (torch.float16, torch.bfloat16):
        half = z.to(dtype)
        log_p = log_assignments(half, C, TAU)
        assert log_p.dtype == torch.float32
        torch.testing.assert_close(log_p, log_assignments(half.float(), C, TAU), rtol=0, atol=0)


def test_under_autocast_only_the_products_are_in_half_precision():
    z, _, C, _, _ = batch()
    with torch.autocast("cpu", torch.bfloat16):
        log_p = log_assignments(z, C, TAU)
        scores = z @ normalize(C, dim=1).t()
    assert (log_p.dtype, scores.dtype) == (torch.float32, torch.bfloat16)
    want = torch.log_softmax(scores.float() / z.norm(dim=1, keepdim=True) / TAU, dim=1)
    torch.testing.assert_close(log_p, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("members", [None, draw()], ids=["L2", "L3"])
def test_an_embedding_of_zero_is_as_near_to_every_prototype_and_spoils_no_gradient(members):
    z, _, C, q, _ = batch()
    z[2] = 0
    z.requires_grad_()
    log_p = log_assignments(z, C, TAU) if members is None else ensemble_log_assignments(z, C, members, TAU)
    torch.testing.assert_close(log_p[..., 2, :], torch.full_like(log_p[..., 2, :], -math.log(K)))
    (gradient,) = torch.autograd.grad((q * log_p).sum(), z)
    assert gradient.isfinite().all()


def test_members_tables_have_the_images_last_in_memory():
    """Where there are a hundred images and ten clusters, a CPU then takes two thirds of the time."""
    z, _, C, _, _ = batch()
    assert ensemble_log_assignments(z, C, draw(), TAU).mT.is_contiguous()


# ---- the transformations -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("dim", "projection_dim"), [(256, 64), (8, 8), (5, 1)])
def test_projections_have_orthonormal_rows(dim, projection_dim):
    A = draw_transforms("projection", 10, dim, projection_dim, 0)
    assert A.shape == (10, projection_dim, dim)
    assert A.dtype == torch.float32
    eye = torch.eye(projection_dim).expand(10, -1, -1)
    torch.testing.assert_close(A @ A.transpose(1, 2), eye, rtol=0, atol=1e-5)


def test_projections_point_everywhere_alike():
    # Householder's QR alone would give every frame's first entry the same sign.
    A = draw_transforms("projection", 2000, 6, 2, 0)
    assert ((A > 0).float().mean(0) - 0.5).abs().max() < 0.05
    torch.testing.assert_close(A.square().mean(0), torch.full((2, 6), 1 / 6), rtol=0, atol=0.02)


def test_diagonals_are_uniform_on_the_unit_interval():
    A = draw_transforms("diagonal", 400, 50, 3, 0)
    assert A.shape == (400, 50)
    assert A.min() >= 0
    assert A.max() <= 1
    quantiles = torch.linspace(0.1, 0.9, 9)
    torch.testing.assert_close(A.flatten().quantile(quantiles), quantiles, rtol=0, atol=0.02)


@pytest.mark.parametrize("kind", ["projection", "diagonal"])
def test_transforms_come_from_the_seed_alone(kind):
    torch.manual_seed(1)
    first = draw(kind, seed=7)
    state = torch.get_rng_state()
    torch.manual_seed(2)
    assert torch.equal(draw(kind, seed=7), first)
    assert not torch.allclose(draw(kind, seed=8), first)
    assert not torch.allclose(first[0], first[1])
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state)  # nothing was drawn from the global generator


@pytest.mark.parametrize("kind", ["projection", "diagonal"])
def test_transform_is_a_matrix_product_per_member(kind):
    z, A = batch()[0], draw(kind)
    want = torch.stack([torch.stack([a @ x for x in z.double()]) for a in matrices(A)])
    torch.testing.assert_close(transform(A, z).double(), want, rtol=1e-5, atol=1e-5)


# ---- diversity ---------------------------------------------------------------------------------------------


def sklearn_diversity(votes):
    pairs = [
        normalized_mutual_info_score(a, b, average_method="geometric")
        for a, b in itertools.combinations(votes.numpy(), 2)
    ]
    values = torch.tensor(pairs, dtype=torch.float64)
    return float(values.mean()), float(values.std(unbiased=False))


def noisy_votes(members, n, k, noise, seed=0):
    """Members that agree except for a share `noise` of their votes."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randint(k, (n,), generator=generator).expand(members, -1)
    other = torch.randint(k, (members, n), generator=generator)
    return torch.where(torch.rand(members, n, generator=generator) < noise, other, truth)


@pytest.mark.parametrize(("n", "k"), [(500, 10), (37, 3), (20, 15)])
@pytest.mark.parametrize("noise", [0.0, 0.2, 1.0])
def test_diversity_equals_scikit_learn_over_all_pairs(n, k, noise):
    votes = noisy_votes(7, n, k, noise)
    assert diversity(votes, k) == pytest.approx(sklearn_diversity(votes), abs=1e-6)


def test_diversity_of_degenerate_members():
    varied, constant = torch.arange(60) % 3, torch.zeros(60, dtype=torch.int64)
    assert diversity(torch.stack([varied, varied, (varied + 1) % 3]), 3) == pytest.approx((1, 0), abs=1e-6)
    assert diversity(torch.stack([constant, constant + 2]), 3) == pytest.approx((1, 0), abs=1e-6)
    assert diversity(torch.stack([constant, varied]), 3) == pytest.approx((0, 0), abs=1e-6)
    assert diversity(varied[None], 3) == (1, 0)
    mixed = torch.stack([constant, varied, varied, constant, torch.randint(3, (60,))])
    assert diversity(mixed, 5) == pytest.approx(sklearn_diversity(mixed), abs=1e-6)


def test_knowing_nothing_costs_ln_k():
    _, _, _, q1, q2 = batch()
    uniform = torch.full((B, K), -math.log(K))
    assert swapped_loss(uniform, uniform, q1, q2).item() == pytest.approx(math.log(K), rel=1e-6)
    members = uniform.expand(M, B, K)
    assert swapped_loss(members, members, q1, q2).item() == pytest.approx(math.log(K), rel=1e-6)
