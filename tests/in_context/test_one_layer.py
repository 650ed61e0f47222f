"""Theorem 1, its landscape and its second valley: closed forms against autograd, samples, exact fractions and Hessians."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from helpers import normal
from hypothesis import given
from hypothesis import strategies as st

from attnopt.in_context import (
    attention_loss,
    gram_quadrature,
    in_context_loss,
    one_layer_loss,
    one_layer_optimum,
    sample_prompts,
    second_valley,
    valley_loss,
    valley_parameters,
)

SPECTRA = [(1.0,), (0.7, 0.7), (1.0, 0.2), (1.0, 0.5, 0.25), (2.0, 1.0, 1.0, 0.1)]
EXAMPLES = [1, 3, 20]


def covariance_of(generator, spectrum):
    """A covariance with the given eigenvalues in random directions."""
    rotation = torch.linalg.qr(normal(generator, len(spectrum), len(spectrum)))[0]
    value = rotation @ torch.diag(torch.tensor(spectrum, dtype=torch.float64)) @ rotation.mT
    return (value + value.mT) / 2


def best(covariance, n):
    """Theorem 1's b and A."""
    dim = len(covariance)
    b = torch.zeros(dim + 1, dtype=torch.float64)
    b[-1] = 1
    return b, torch.cat([one_layer_optimum(covariance, n), torch.zeros(1, dim, dtype=torch.float64)])


def packed(spectrum, n):
    """The exact loss as a function of one vector (b, A)."""
    d, covariance = len(spectrum), torch.diag(torch.as_tensor(spectrum, dtype=torch.float64))
    return lambda v: attention_loss(v[: d + 1], v[d + 1 :].reshape(d + 1, d), covariance, n)


@pytest.mark.evidence("ahn-parameters-that-matter")
@pytest.mark.parametrize(("dim", "n"), [(1, 1), (2, 1), (2, 5), (3, 2), (3, 10)])
def test_loss_sees_the_last_row_of_p_and_the_first_d_columns_of_q(dim, n, generator):
    prompts, targets = sample_prompts(50, torch.eye(dim, dtype=torch.float64), n, generator)
    P = normal(generator, 1, dim + 1, dim + 1).requires_grad_()
    Q = normal(generator, 1, dim + 1, dim + 1).requires_grad_()
    loss = in_context_loss(prompts, targets, P, Q)
    loss.backward()
    assert (P.grad[0, :-1] == 0).all()
    assert (Q.grad[0, :, -1] == 0).all()
    assert (P.grad[0, -1] != 0).all()
    assert (Q.grad[0, :, :-1] != 0).all()
    tokens = prompts[:, :-1]
    C = tokens.mT @ tokens / n
    error = (P[0, -1] @ C @ Q[0, :, :dim] * prompts[:, -1, :dim]).sum(-1) + targets
    torch.testing.assert_close(loss, error.square().mean(), rtol=1e-10, atol=0)  # (15), the square included


@pytest.mark.evidence("ahn-theorem-1")
@pytest.mark.parametrize("n", [1, 2, 7])
def test_attention_loss_is_exact_by_quadrature(n, generator):
    spectrum = torch.tensor([1.0, 0.4], dtype=torch.float64)
    grams, weights = map(torch.from_numpy, gram_quadrature(2, n, 2))
    H = spectrum.sqrt()[:, None] * grams * spectrum.sqrt()
    nodes, mass = np.polynomial.hermite_e.hermegauss(3)
    b, A = normal(generator, 3), normal(generator, 3, 2)
    total = 0
    for i, j in itertools.product(range(3), repeat=2):
        w = torch.tensor([nodes[i], nodes[j]], dtype=torch.float64)
        Hw = H @ w
        C = torch.cat([torch.cat([H, Hw[..., None]], -1), torch.cat([Hw, (Hw @ w)[:, None]], -1)[:, None]], -2)
        error = b @ C @ A + w
        total += mass[i] * mass[j] / mass.sum() ** 2 * (error.square() @ spectrum @ weights)
    expected = attention_loss(b, A, torch.diag(spectrum), n)
    torch.testing.assert_close(total, expected, rtol=1e-10, atol=0)


@pytest.mark.evidence("ahn-theorem-1")
@pytest.mark.parametrize("n", EXAMPLES)
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_landscape_is_the_minimum_plus_two_squares(spectrum, n, generator):
    covariance = covariance_of(generator, spectrum)
    dim = len(spectrum)
    values = torch.tensor(spectrum, dtype=torch.float64)
    floor = (values * (values + values.sum()) / ((n + 1) * values + values.sum())).sum()
    torch.testing.assert_close(attention_loss(*best(covariance, n), covariance, n), floor, rtol=1e-12, atol=0)
    b, A = normal(generator, 50, dim + 1), normal(generator, 50, dim + 1, dim)
    losses = attention_loss(b, A, covariance, n)
    assert (losses > floor).all()
    b[:, :-1] = A[:, -1] = 0  # without the even part the excess is the second square
    M = b[:, -1, None, None] * A[:, :-1]
    K = ((n + 1) * covariance @ covariance + covariance.trace() * covariance) / n
    D = M - one_layer_optimum(covariance, n)
    excess = (D @ covariance @ D.mT @ K).diagonal(dim1=-2, dim2=-1).sum(-1)
    torch.testing.assert_close(attention_loss(b, A, covariance, n), floor + excess, rtol=1e-10, atol=0)


@pytest.mark.evidence("ahn-theorem-1")
@pytest.mark.parametrize("n", EXAMPLES)
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_optimum_is_critical_and_rescaling_keeps_it(spectrum, n, generator):
    covariance = covariance_of(generator, spectrum)
    b, A = best(covariance, n)
    for factor in (1.0, -2.5, 0.1):
        scaled = [(factor * b).requires_grad_(), (A / factor).requires_grad_()]
        loss = attention_loss(*scaled, covariance, n)
        torch.testing.assert_close(loss, attention_loss(b, A, covariance, n), rtol=1e-12, atol=0)
        assert all(g.abs().max() < 1e-11 for g in torch.autograd.grad(loss, scaled))


@pytest.mark.evidence("ahn-unique-optimum")
@pytest.mark.parametrize("n", [1, 4, 30])
@pytest.mark.parametrize("spectrum", [(1.0, 0.2), (1.0, 1.0), (1.0, 0.5, 0.25)])
def test_minimiser_is_isolated_but_for_the_scale(spectrum, n):
    covariance = torch.diag(torch.tensor(spectrum, dtype=torch.float64))
    b, A = best(covariance, n)
    curvatures = torch.linalg.eigvalsh(torch.autograd.functional.hessian(packed(spectrum, n), torch.cat([b, A.flatten()])))
    assert abs(curvatures[0]) < 1e-12
    assert curvatures[1] > 1e-4


@pytest.mark.evidence("ahn-theorem-1", "ahn-lemma-7")
def test_optimum_by_hand_in_exact_fractions():
    """Σ = diag(1, 1/2), n = 3: 3/(4·1 + 3/2) = 6/11, 3/(4/2 + 3/2) = 6/7, and the loss 5/11 + 2/7."""
    covariance = torch.diag(torch.tensor([1.0, 0.5], dtype=torch.float64))
    A = one_layer_optimum(covariance, 3)
    torch.testing.assert_close(A.diagonal(), -torch.tensor([6 / 11, 6 / 7], dtype=torch.float64), rtol=1e-14, atol=0)
    loss = Fraction(1) * (1 + Fraction(3, 2)) / (4 + Fraction(3, 2)) + Fraction(1, 2) * 2 / (2 + Fraction(3, 2))
    assert loss == Fraction(5, 11) + Fraction(2, 7)
    assert one_layer_loss(A, covariance, 3).item() == pytest.approx(float(loss), rel=1e-14)


@pytest.mark.evidence("ahn-isotropic", "ahn-lemma-6")
@pytest.mark.parametrize(("dim", "n"), [(1, 1), (5, 20), (4, 2)])
def test_isotropic_case(dim, n):
    identity = torch.eye(dim, dtype=torch.float64)
    A = one_layer_optimum(identity, n)
    torch.testing.assert_close(A, -identity / ((n - 1) / n + (dim + 2) / n), rtol=1e-14, atol=1e-16)
    loss = one_layer_loss(A, identity, n)
    assert loss.item() == pytest.approx(dim * (dim + 1) / (n + dim + 1), rel=1e-13)
    for factor in (0.9, 1.1):
        assert one_layer_loss(factor * A, identity, n) > loss


@pytest.mark.evidence("ahn-tradeoff")
def test_tradeoff_limits_and_scale(generator):
    covariance = covariance_of(generator, (1.0, 0.1, 0.003))
    T = covariance.trace()
    many = 10**7
    torch.testing.assert_close(one_layer_optimum(covariance, many), -torch.linalg.inv(covariance), rtol=1e-3, atol=0)
    assert many * one_layer_loss(one_layer_optimum(covariance, many), covariance, many) / T == pytest.approx(4, rel=1e-3)
    few = -torch.linalg.eigvalsh(one_layer_optimum(covariance, 20))
    assert few.max() == pytest.approx(20 / T.item(), rel=0.06)  # λ = 0.003: plain gradient descent
    assert few.min() == pytest.approx(20 / (21 + T.item()), rel=1e-9)  # λ = 1: Newton's method
    # what the variance of x does to the shape: nothing
    torch.testing.assert_close(one_layer_optimum(9 * covariance, 20), one_layer_optimum(covariance, 20) / 9)


spectra = st.lists(st.floats(0.02, 5), min_size=1, max_size=4)
counts = st.integers(1, 200)


@given(spectra, counts, st.floats(0, math.pi / 2), st.integers(0, 3))
def test_valley_is_part_of_the_loss_and_least_in_its_family(spectrum, n, angle, direction):
    direction %= len(spectrum)
    values = torch.tensor(spectrum, dtype=torch.float64)
    at = torch.tensor(angle, dtype=torch.float64)
    b, A = valley_parameters(at, values, n, direction)
    A.requires_grad_()
    loss = attention_loss(b, A, torch.diag(values), n)
    torch.testing.assert_close(loss, valley_loss(at, values, n, direction), rtol=1e-8, atol=1e-10)
    (slope,) = torch.autograd.grad(loss, A)
    assert slope.abs().max() < 1e-6 * (1 + values.sum() ** 3)  # A is best for this b, in every entry


def threshold(values, n):
    """τ of the theorem on the second valley."""
    own, trace, squares = values[0], values.sum(), values.square().sum()
    kappa = (n + 2) ** 2 * (trace**2 + 2 * squares) - (n * trace + 2 * own) ** 2
    return own**2 * kappa / ((n + 2) * ((n + 1) * own + trace) ** 2)


@pytest.mark.evidence("ahn-unique-optimum")
@pytest.mark.parametrize("n", [1, 5, 20, 100])
@pytest.mark.parametrize("others", [(1.0,), (1.0, 0.5)])
def test_rank_one_valley_is_a_minimum_up_to_the_threshold(n, others):
    shape = torch.tensor([0.0, *others], dtype=torch.float64)

    def margin(t):
        values = torch.tensor([1.0, 0, 0][: len(shape)], dtype=torch.float64) + t * shape
        return (threshold(values, n) - (t * shape).square().sum()).item()

    low, high = 1e-6, 0.999
    assert margin(low) > 0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if margin(middle) > 0 else (low, middle)
    cases = [(0.97 * low, True)] + [(1.03 * low, False)] * (1.03 * low < 0.999)  # else a minimum for all of this shape
    for t, minimum in cases:
        values = torch.tensor([1.0, 0, 0][: len(shape)], dtype=torch.float64) + t * shape
        b, A = valley_parameters(torch.tensor(math.pi / 2, dtype=torch.float64), values, n)
        loss, point = packed(values, n), torch.cat([b, A.flatten()])
        assert torch.autograd.functional.jacobian(loss, point).abs().max() < 1e-12
        curvatures = torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, point))
        assert (curvatures[0] > -1e-12) == minimum
        if minimum:
            assert curvatures[1] > 1e-6


@pytest.mark.evidence("ahn-unique-optimum")
@pytest.mark.parametrize(
    ("spectrum", "n"), [((1.0, 0.5), 20), ((1.0, 0.2), 20), ((1.0, 0.5, 0.25), 10), ((1.0, 0.5, 0.25, 0.2, 0.1), 20)]
)
def test_second_valley_is_a_local_minimum_above_the_optimum(spectrum, n):
    values = torch.tensor(spectrum, dtype=torch.float64)
    angle, floor = second_valley(values, n)
    assert floor > 1.5 * valley_loss(torch.tensor(0.0, dtype=torch.float64), values, n)
    b, A = valley_parameters(torch.tensor(angle, dtype=torch.float64), values, n)
    loss, point = packed(spectrum, n), torch.cat([b, A.flatten()])
    assert loss(point).item() == pytest.approx(floor, rel=1e-12)
    assert torch.autograd.functional.jacobian(loss, point).norm() < 1e-6
    curvatures = torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, point))
    assert abs(curvatures[0]) < 1e-7
    assert curvatures[1] > 1e-4
    # gradient descent from nearby stays
    generator, d = torch.Generator().manual_seed(0), len(spectrum)
    b = (b + 0.02 * normal(generator, 5, d + 1)).requires_grad_()
    A = (A + 0.02 * normal(generator, 5, d + 1, d)).requires_grad_()
    start = attention_loss(b, A, torch.diag(values), n).detach()
    optimiser = torch.optim.SGD([b, A], lr=0.1)
    for _ in range(150):
        optimiser.zero_grad()
        attention_loss(b, A, torch.diag(values), n).sum().backward()
        optimiser.step()
    ends = attention_loss(b, A, torch.diag(values), n).detach()
    assert (ends > floor - 1e-9).all()
    assert (ends - floor < 0.2 * (start - floor)).all()


def test_where_there_is_no_second_valley():
    assert second_valley(torch.ones(3, dtype=torch.float64), 20) is None
    assert second_valley(torch.ones(3, dtype=torch.float64), 23) is None
    assert second_valley(torch.ones(3, dtype=torch.float64), 24) is not None
    with pytest.raises(ValueError, match="eigenvalues must be at least two, got"):
        second_valley(torch.ones(1, dtype=torch.float64), 24)
