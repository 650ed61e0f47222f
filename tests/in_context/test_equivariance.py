"""Equivariance of layers A_i = a_i Σ⁻¹, B_i = b_i I, what it says of gradients, and the flow inside these points."""

import pytest
import torch
from torch.func import jvp

from attnopt.in_context import (
    gdpp_loss,
    gram_quadrature,
    prompt_losses,
)

torch_double = {"dtype": torch.float64}


def problem(d, n, k, seed=0):
    """Covariance root, its inverse, U_Σ with orthogonal U, columns X_0 with the query last, and a point of the set."""
    generator = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, generator=generator, **torch_double)  # noqa: E731
    values, vectors = torch.linalg.eigh(normal(d, d) @ normal(d, d).mT + normal(d, d))
    values = 0.3 + torch.rand(d, generator=generator, **torch_double)
    root = (vectors * values.sqrt()) @ vectors.mT
    inverse_root = torch.linalg.inv(root)
    orthogonal = torch.linalg.qr(normal(d, d))[0]
    a, b = -0.5 * torch.rand(2, k, generator=generator, **torch_double) - 0.1
    A = a[:, None, None] * (inverse_root @ inverse_root)
    B = b[:, None, None] * torch.eye(d, **torch_double)
    return root, inverse_root, root @ orthogonal @ inverse_root, normal(d, n + 1), A, B, normal(d, d)


def forward(start, A, B):
    """The covariates X_0 … X_k and the product G = X_0 Π(I + M X_iᵀ A_i X_i), with 1/n, as in the appendix but for signs."""
    tokens = start.shape[1]
    mask = torch.diag(torch.cat([start.new_ones(tokens - 1), start.new_zeros(1)])) / (tokens - 1)
    seen, product = [start], start
    for one, two in zip(A, B, strict=True):
        scores = mask @ seen[-1].mT @ one @ seen[-1]
        product = product + product @ scores
        seen.append(seen[-1] + two @ seen[-1] @ scores)
    return torch.stack(seen), product


def moved(matrices, layer, direction, t):
    """The same matrices, one of them moved."""
    return torch.stack([m + t * direction if i == layer else m for i, m in enumerate(matrices)])


SIZES = [(2, 3, 2), (4, 2, 3), (3, 5, 4)]


@pytest.mark.evidence("ahn-equivariance")
@pytest.mark.parametrize(("d", "n", "k"), SIZES)
def test_states_and_product_are_equivariant(d, n, k):
    *_, turn, start, A, B, _ = problem(d, n, k)
    (seen, product), (turned, turned_product) = forward(start, A, B), forward(turn @ start, A, B)
    torch.testing.assert_close(turned, turn @ seen, rtol=1e-10, atol=1e-11)
    torch.testing.assert_close(turned_product, turn @ product, rtol=1e-10, atol=1e-11)


@pytest.mark.evidence("ahn-equivariance")
@pytest.mark.parametrize(("d", "n", "k"), SIZES)
@pytest.mark.parametrize("layer", [0, 1])
def test_derivatives_turn_with_the_direction(d, n, k, layer):
    _, _, turn, start, A, B, direction = problem(d, n, k)
    back = torch.linalg.inv(turn)
    zero, one = torch.zeros((), **torch_double), torch.ones((), **torch_double)
    along = {
        "A": (lambda x, r: lambda t: forward(x, moved(A, layer, r, t), B), turn.mT @ direction @ turn),
        "B": (lambda x, s: lambda t: forward(x, A, moved(B, layer, s, t)), back @ direction @ turn),
    }
    for build, turned_direction in along.values():
        _, (seen, product) = jvp(build(turn @ start, direction), (zero,), (one,))
        _, (expected_seen, expected_product) = jvp(build(start, turned_direction), (zero,), (one,))
        torch.testing.assert_close(back @ seen, expected_seen, rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(back @ product, expected_product, rtol=1e-9, atol=1e-10)
    if layer + 1 == k:  # the last B has no effect
        return
    wrong = jvp(along["B"][0](start, turn.mT @ direction @ turn), (zero,), (one,))[1][1]
    assert (wrong - jvp(along["B"][0](start, along["B"][1]), (zero,), (one,))[1][1]).abs().max() > 1e-3


@pytest.mark.evidence("ahn-equivariance")
def test_printed_sign_of_the_product_is_wrong():
    *_, start, A, B, _ = problem(3, 4, 1)
    weights = torch.randn(1, 3, generator=torch.Generator().manual_seed(5), **torch_double)
    mask = torch.diag(torch.tensor([1.0] * 4 + [0.0], **torch_double)) / 4
    labels = weights @ start
    after = labels + labels @ mask @ start.mT @ A[0] @ start  # (31)
    printed = start @ (torch.eye(5, **torch_double) - mask @ start.mT @ A[0] @ start)
    torch.testing.assert_close(weights @ forward(start, A, B)[1], after)
    assert (weights @ printed - after).abs().max() > 1e-2


def exact_loss(d, n, k, inverse_root, root):
    """The exact loss as a function of the unwhitened A_i, B_i, shape (2, k, d, d)."""
    grams, weights = map(torch.from_numpy, gram_quadrature(d, n, 3**k - 1))
    return lambda point: prompt_losses(grams, root @ point[0] @ root, inverse_root @ point[1] @ root) @ weights


@pytest.mark.evidence("ahn-theorem-5")
@pytest.mark.parametrize(("d", "n", "k"), [(2, 1, 2), (2, 4, 2), (2, 5, 3), (3, 4, 2)])
def test_gradient_on_the_set_is_a_multiple_of_the_covariance_and_of_the_identity(d, n, k):
    root, inverse_root, _, _, A, B, _ = problem(d, n, k)
    covariance, loss = root @ root, exact_loss(d, n, k, inverse_root, root)
    slope = torch.func.grad(loss)(torch.stack([A, B]))
    eye = torch.eye(d, **torch_double)
    for part, shape in zip(slope, (covariance, eye), strict=True):
        factor = (part * shape).sum((-2, -1), keepdim=True) / shape.square().sum()
        torch.testing.assert_close(part, factor * shape, rtol=1e-8, atol=1e-8 * slope.abs().max())
    assert slope[0].abs().min() > 0
    assert slope[1, -1].abs().max() == 0
    a, b = (A @ covariance)[:, 0, 0], B[:, 0, 0]
    of_scalars = torch.func.grad(lambda a, b: gdpp_loss(a, (a * b)[:-1], d, n), argnums=(0, 1))(a, b)
    torch.testing.assert_close(slope[0], of_scalars[0][:, None, None] * covariance / d, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(slope[1], of_scalars[1][:, None, None] * eye / d, rtol=1e-8, atol=1e-8)


@pytest.mark.evidence("ahn-descent-direction")
@pytest.mark.parametrize(("d", "n", "k"), [(2, 4, 2), (3, 4, 2)])
def test_directions_replaced_layer_by_layer_with_equality(d, n, k):
    root, inverse_root, _, _, A, B, _ = problem(d, n, k)
    covariance, loss = root @ root, exact_loss(d, n, k, inverse_root, root)
    generator = torch.Generator().manual_seed(7)
    R, S = torch.randn(2, k, d, d, generator=generator, **torch_double)
    slope = torch.func.grad(loss)(torch.stack([A, B]))
    trace = lambda m: m.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None]  # noqa: E731
    eye = torch.eye(d, **torch_double)
    right = torch.stack(
        [trace(root @ R @ root) / d * torch.linalg.inv(covariance), trace(inverse_root @ S @ root) / d * eye]
    )
    assert (slope * right).sum() == pytest.approx((slope * torch.stack([R, S])).sum().item(), rel=1e-9)
    printed = torch.stack([trace(root @ R @ root) / d * eye, right[1]])
    assert abs((slope * printed).sum() - (slope * right).sum()) > 1e-2 * abs((slope * right).sum())


@pytest.mark.evidence("ahn-descent-direction")
@pytest.mark.parametrize(("d", "n", "k"), [(2, 4, 2), (3, 4, 2)])
def test_flow_dissipates_the_squared_gradient_only_with_one_over_d(d, n, k):
    root, inverse_root, _, _, A, B, _ = problem(d, n, k)
    covariance, loss = root @ root, exact_loss(d, n, k, inverse_root, root)
    slope = torch.func.grad(loss)(torch.stack([A, B]))
    trace = lambda m: m.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None]  # noqa: E731
    r, s = trace(root @ slope[0] @ root), trace(inverse_root @ slope[1] @ root)
    velocity = -torch.stack([r * torch.linalg.inv(covariance), s * torch.eye(d, **torch_double)])
    squared = slope.square().sum()
    assert (slope * velocity).sum() == pytest.approx(-d * squared.item(), rel=1e-8)
    printed = -s * torch.linalg.inv(covariance)
    off = printed - trace(printed) / d * torch.eye(d, **torch_double)
    assert off.abs().max() > 1e-2 * printed.abs().max()  # it leaves the set at once
