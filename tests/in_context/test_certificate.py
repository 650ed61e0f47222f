import pytest
import sympy as sp
import torch

from attnopt.in_context import certificate, gram_quadrature, optimal_step_sizes, prompt_losses
from attnopt.in_context.certificate import beta, column_loss, m, s, two_layer_certificate, x

PAIRS = [(2, 1), (2, 2), (2, 5), (3, 3), (3, 30), (5, 1), (5, 20), (10, 10)]


def exact_columns(dim, n_context, alpha, betas):
    """Mean squares of the columns of the residual of two diagonal layers, by the exact rule over Gram matrices."""
    grams, weights = map(torch.from_numpy, gram_quadrature(dim, n_context, 4))
    identity = torch.eye(dim, dtype=torch.float64)
    residual = (identity + grams @ torch.diag(alpha)) @ (identity + grams @ torch.diag(betas))
    return torch.einsum("q,qij->j", weights, residual.square())


@pytest.mark.parametrize(("dim", "n_context"), [(2, 1), (2, 6), (3, 2), (3, 7)])
def test_columns_of_the_residual(dim, n_context, generator):
    loss, least = column_loss(dim, n_context)
    assert float(optimal_step_sizes(dim, n_context, 2)[1]) / dim == pytest.approx(float(least), rel=1e-12)
    psi = sp.lambdify((x, m, beta), loss)
    for _ in range(5):
        alpha, betas = torch.randn(2, dim, dtype=torch.float64, generator=generator)
        columns = exact_columns(dim, n_context, alpha, betas)
        means = (alpha.sum() - alpha) / (dim - 1)
        bounds = psi(alpha, means, betas)
        assert (columns >= bounds - 1e-9 * bounds.abs()).all()
        if dim == 2:  # a single other direction has no spread
            torch.testing.assert_close(columns, bounds)
        alike = torch.full((dim,), means[0].item(), dtype=torch.float64)
        alike[0] = alpha[0]
        torch.testing.assert_close(exact_columns(dim, n_context, alike, betas)[0], psi(*alike[:2], betas[0]))


@pytest.mark.parametrize(("dim", "n_context"), PAIRS)
def test_two_layers_do_best_with_scalars(dim, n_context):
    multiplier = two_layer_certificate(dim, n_context)
    loss, least = column_loss(dim, n_context)
    excess = sp.lambdify((x, m, beta), loss - least - multiplier.subs(s, (x + (dim - 1) * m) / dim) * (x - m))
    steps = optimal_step_sizes(dim, n_context, 2)[0].tolist()
    for one, other in (steps, steps[::-1]):
        assert abs(excess(one, one, other)) < 1e-12
    grid = torch.linspace(-6, 3, 61, dtype=torch.float64)
    values = excess(*torch.meshgrid(grid, grid, grid, indexing="ij"))
    assert values.min() >= -1e-12


@pytest.mark.parametrize(("dim", "n_context"), [(2, 2), (3, 5)])
def test_random_pairs_lie_above_the_scalar_optimum(dim, n_context, generator):
    grams, weights = map(torch.from_numpy, gram_quadrature(dim, n_context, 4))
    layers = torch.randn(200, 2, dim, dim, dtype=torch.float64, generator=generator)
    best = optimal_step_sizes(dim, n_context, 2)
    losses = torch.stack([prompt_losses(grams, pair + pair.mT) @ weights for pair in layers])
    assert losses.min() > float(best[1])
    scalars = best[0][:, None, None] * torch.eye(dim, dtype=torch.float64)
    assert float(prompt_losses(grams, scalars) @ weights) == pytest.approx(float(best[1]), rel=1e-12)


def test_a_larger_bound_has_no_certificate(monkeypatch):
    loss, least = column_loss(2, 5)
    monkeypatch.setattr(certificate, "column_loss", lambda *_: (loss, least * sp.Rational(1001, 1000)))
    with pytest.raises(ArithmeticError, match="fails at s"):
        two_layer_certificate(2, 5)


@pytest.mark.parametrize("arguments", [(1, 5), (2, 0), (0, 3)])
def test_bad_sizes_are_named(arguments):
    with pytest.raises(ValueError, match="dim|n_context"):
        two_layer_certificate(*arguments)
    with pytest.raises(TypeError, match="dim must be an integer"):
        two_layer_certificate(2.5, 3)
