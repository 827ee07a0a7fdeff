"""L1 against equations 1 and 2 written out, and the pairing of the views; L2 and L3: see test_ensemble."""

import pytest
import torch

from concurl.objective.losses import byol_loss, swapped_loss


def draw(*shape, seed=0):
    return list(torch.randn(4, *shape, generator=torch.Generator().manual_seed(seed)))


def plain_l1(w1, w2, v1, v2):
    """Mean over the batch of ||w1/|w1| - v2/|v2|||^2 + ||w2/|w2| - v1/|v1|||^2."""
    total = 0
    for a1, a2, b1, b2 in zip(w1, w2, v1, v2, strict=True):
        for w, v in ((a1, b2), (a2, b1)):
            total = total + ((w / (w * w).sum().sqrt() - v / (v * v).sum().sqrt()) ** 2).sum()
    return total / len(w1)


def test_l1_equals_the_formula_in_value_and_gradient():
    w1, w2, v1, v2 = draw(9, 12)
    w1.requires_grad_()
    w2.requires_grad_()
    precise = [x.detach().double().requires_grad_() for x in (w1, w2, v1, v2)]
    loss, want = byol_loss(w1, w2, v1, v2), plain_l1(*precise)
    torch.testing.assert_close(loss.double(), want, rtol=1e-6, atol=1e-6)
    got, wanted = torch.autograd.grad(loss, [w1, w2]), torch.autograd.grad(want, precise[:2])
    for gradient, expected in zip(got, wanted, strict=True):
        torch.testing.assert_close(gradient.double(), expected, rtol=1e-5, atol=1e-6)


def test_l1_goes_from_0_to_8_and_pairs_each_view_with_the_other():
    w1, w2, _, _ = draw(5, 7)
    assert byol_loss(w1, w2, 3 * w2, 0.2 * w1).item() == pytest.approx(0, abs=1e-6)
    assert byol_loss(w1, w2, -w2, -w1).item() == pytest.approx(8, abs=1e-5)
    assert byol_loss(w1, w2, w1, w2).item() > 1


def test_l1_gives_the_target_no_gradient():
    leaves = [x.requires_grad_() for x in draw(5, 7)]
    gradients = torch.autograd.grad(byol_loss(*leaves), leaves, allow_unused=True)
    assert all(gradient.abs().sum() > 0 for gradient in gradients[:2])
    assert gradients[2:] == (None, None)


def test_l1_of_half_precision_is_computed_in_full():
    half = [x.bfloat16() for x in draw(64, 256)]
    loss = byol_loss(*half)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), plain_l1(*(x.double() for x in half)), rtol=1e-5, atol=1e-5)


def test_each_view_predicts_the_codes_of_the_other():
    """With one-hot codes the loss picks out log p1 at the code of view 2 and log p2 at that of view 1."""
    a1, a2, _, _ = draw(4, 3)
    log_p1, log_p2 = a1.log_softmax(1), a2.log_softmax(1)
    code1, code2 = torch.tensor([0, 1, 2, 0]), torch.tensor([2, 2, 1, 0])
    q1, q2 = (torch.nn.functional.one_hot(code, 3).float() for code in (code1, code2))
    want = -sum(log_p1[i, code2[i]] + log_p2[i, code1[i]] for i in range(4)) / 8
    torch.testing.assert_close(swapped_loss(log_p1, log_p2, q1, q2), want)


def test_codes_get_no_gradient() -> None:
    leaves = [torch.rand(4, 3, requires_grad=True) for _ in range(4)]
    gradients = torch.autograd.grad(swapped_loss(*leaves), leaves, allow_unused=True)
    assert all(gradient.abs().sum() > 0 for gradient in gradients[:2])
    assert gradients[2:] == (None, None)
