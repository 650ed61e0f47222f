import pytest
import sympy as sp
import torch
from helpers import AXES, normal

from attnopt.softmax import logsumexp, softmax
from attnopt.symbolic import (
    collapse_deltas,
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


def test_is_zero_tells_zero_from_not_zero():
    x = sp.Symbol("x", real=True)
    assert is_zero(sp.sin(x) ** 2 + sp.cos(x) ** 2 - 1)
    assert is_zero(sp.Matrix([0, (x + 1) ** 2 - x**2 - 2 * x - 1]))
    assert not is_zero(sp.Matrix([0, x]))
    assert not is_zero(x)


def test_collapse_deltas_picks_the_term():
    n = sp.Symbol("n", integer=True, positive=True)
    i, j = sp.symbols("i j", integer=True)
    a = sp.IndexedBase("a")
    assert collapse_deltas(sp.Sum(sp.KroneckerDelta(i, j) * a[i] ** 2, (i, 0, n - 1))) == a[j] ** 2
    assert collapse_deltas(a[j] + 1) == a[j] + 1
