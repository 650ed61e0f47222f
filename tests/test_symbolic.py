import pytest
import sympy as sp
import torch
from helpers import AXES, normal

from attnopt.softmax import logsumexp, softmax
from attnopt.symbolic import (
    collapse_deltas,
    gaussian_expectation,
    gradient,
    is_zero,
    logsumexp_matrix,
    softmax_matrix,
    symbols_matrix,
    symmetric_matrix,
)


@pytest.mark.parametrize("axis", AXES)
def test_symbolic_and_numeric_agree(axis, generator):
    x, values = symbols_matrix("x", 3, 2), normal(generator, 3, 2)
    substitution = dict(zip(list(x), values.flatten().tolist(), strict=True))
    symbolic = torch.tensor(softmax_matrix(x, axis).subs(substitution).tolist(), dtype=torch.float64)
    torch.testing.assert_close(symbolic, softmax(values, axis), rtol=1e-13, atol=0)
    lse = torch.tensor([float(v) for v in logsumexp_matrix(x, axis).subs(substitution)], dtype=torch.float64)
    torch.testing.assert_close(lse, logsumexp(values, axis), rtol=1e-13, atol=0)


def test_gradient_keeps_the_shape():
    x = symbols_matrix("x", 2, 3)
    assert gradient(x[0, 0] * x[1, 2] ** 2, x) == sp.Matrix([[x[1, 2] ** 2, 0, 0], [0, 0, 2 * x[0, 0] * x[1, 2]]])


def test_symmetric_matrix_shares_symbols():
    theta = symmetric_matrix("t", 3)
    assert theta == theta.T
    assert len(theta.free_symbols) == 6


def test_symbols_are_real_and_count_from_one():
    assert symbols_matrix("x", 2, 3)[1, 2] == sp.Symbol("x_23", real=True)
    assert symmetric_matrix("t", 3)[2, 1] == sp.Symbol("t_23", real=True)
    assert symmetric_matrix("t", 3)[0, 0] == sp.Symbol("t_11", real=True)


def test_is_zero_tells_zero_from_not_zero():
    x = sp.Symbol("x", real=True)
    assert is_zero(sp.sin(x) ** 2 + sp.cos(x) ** 2 - 1)
    assert is_zero(sp.Matrix([0, (x + 1) ** 2 - x**2 - 2 * x - 1]))
    assert not is_zero(sp.Matrix([0, x]))
    for other in (x, sp.Integer(1), sp.sin(x) ** 2 + sp.cos(x) ** 2):
        assert not is_zero(other)


def test_collapse_deltas_picks_the_term():
    n = sp.Symbol("n", integer=True, positive=True)
    i, j = sp.symbols("i j", integer=True)
    a = sp.IndexedBase("a")
    assert collapse_deltas(sp.Sum(sp.KroneckerDelta(i, j) * a[i] ** 2, (i, 0, n - 1))) == a[j] ** 2
    assert collapse_deltas(a[j] + 1) == a[j] + 1


def test_gaussian_expectation_by_hand():
    x, y, v, u, c = sp.symbols("x y v u c")
    polynomial = c * x**4 * y**2 + 5 * x**3 * y + x**2 + c + 7 * x * y
    assert sp.expand(gaussian_expectation(polynomial, [x, y], [v, u]) - (3 * c * v**2 * u + v + c)) == 0
    assert gaussian_expectation(sp.S(3), [x], [v]) == 3
    assert gaussian_expectation(x**6, [x], [2]) == 15 * 8
    assert gaussian_expectation(x**2 * y, [x, y], [v, u]) == 0  # one odd power is enough
    assert gaussian_expectation(sp.Matrix([[x * y, x**2], [1, y**2]]), [x, y], [v, u]) == sp.Matrix([[0, v], [1, u]])


@pytest.mark.parametrize("degree", range(9))
def test_gaussian_expectation_integrates_the_density(degree):
    x = sp.Symbol("x", real=True)
    variance = sp.Rational(3, 2)
    density = sp.exp(-(x**2) / (2 * variance)) / sp.sqrt(2 * sp.pi * variance)
    integral = sp.integrate(x**degree * density, (x, -sp.oo, sp.oo))
    assert is_zero(gaussian_expectation(x**degree, [x], [variance]) - integral)


def test_gaussian_expectation_refuses_what_it_cannot_do():
    x, y = sp.symbols("x y")
    with pytest.raises(ValueError, match="variances must be one for each of 2"):
        gaussian_expectation(x, [x, y], [1])
    with pytest.raises(sp.PolynomialError):
        gaussian_expectation(sp.exp(x), [x], [1])
