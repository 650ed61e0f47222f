import pytest
import sympy as sp
import torch
from helpers import AXES, normal, precise_cross_entropy, precise_gradient, product, transpose
from hypothesis import given
from hypothesis import strategies as st

from attnopt.regression import (
    linear_gradient,
    pointwise_cross_entropy,
    quadratic_gradient,
    quadratic_gradient_of_paper,
)
from attnopt.softmax import softmax

sizes = st.integers(1, 5)


def quadratic_problem(seed, tokens, width, axis, batch=()):
    """Random features, positive definite weights and soft labels."""
    generator = torch.Generator().manual_seed(seed)
    root = normal(generator, *batch, width, width)
    labels = softmax(2 * normal(generator, *batch, tokens, tokens), axis)
    return normal(generator, *batch, tokens, width), root @ root.mT / width, labels


@pytest.mark.evidence("actor-corollary-1")
@pytest.mark.parametrize("axis", AXES)
@given(tokens=sizes, width=sizes, classes=sizes, seed=st.integers(0, 1000), batch=st.sampled_from([(), (3,), (2, 2)]))
def test_linear_gradient_is_autograd(axis, tokens, width, classes, seed, batch):
    generator = torch.Generator().manual_seed(seed)
    features, weights = normal(generator, *batch, tokens, width), normal(generator, classes, width)
    labels = softmax(normal(generator, *batch, tokens, classes), axis)
    by_autograd = torch.func.grad(lambda z: pointwise_cross_entropy(z @ weights.mT, labels, axis).sum())(features)
    torch.testing.assert_close(linear_gradient(features, weights, labels, axis), by_autograd, rtol=1e-11, atol=1e-12)


@pytest.mark.evidence("actor-theorem-2")
@pytest.mark.parametrize("axis", AXES)
def test_general_model_contracts_the_residual(axis, generator):
    network = torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.Tanh(), torch.nn.Linear(6, 4)).double()
    features, labels = normal(generator, 5, 3), softmax(normal(generator, 5, 4), axis)
    by_autograd = torch.func.grad(lambda z: pointwise_cross_entropy(network(z), labels, axis))(features)
    residual = softmax(network(features), axis) - labels
    tensor = torch.func.jacfwd(network)(features)
    torch.testing.assert_close(torch.einsum("ij,ijkl->kl", residual, tensor), by_autograd, rtol=1e-11, atol=1e-13)


@pytest.mark.evidence("actor-corollary-2")
@pytest.mark.parametrize("axis", AXES)
def test_quadratic_gradient_in_high_precision(axis):
    features, weights, labels = quadratic_problem(0, 3, 2, axis)
    slope = precise_gradient(
        lambda z: precise_cross_entropy(product(product(z, weights.tolist()), transpose(z)), labels.tolist(), axis),
        features,
    )
    torch.testing.assert_close(quadratic_gradient(features, weights, labels, axis), slope, rtol=1e-12, atol=1e-13)


@pytest.mark.evidence("actor-corollary-2")
def test_printed_formula_can_be_exactly_opposite():
    # By hand: Z = (1, 0), theta = log 3 gives e^A = [[3, 1], [1, 1]], columns summing to 4 and 2.
    sigma = sp.Matrix([[sp.Rational(3, 4), sp.Rational(1, 2)], [sp.Rational(1, 4), sp.Rational(1, 2)]])
    labels = sp.Matrix([[sp.Rational(3, 4), sp.Rational(3, 8)], [sp.Rational(1, 4), sp.Rational(5, 8)]])
    first_column = sp.Matrix([1, 0])
    true = (sigma + sigma.T - labels - labels.T) * first_column
    printed = (2 * sigma - labels - labels.T) * first_column
    assert list(true) == [0, sp.Rational(1, 8)]
    assert list(printed) == [0, -sp.Rational(1, 8)]

    features, weights = (
        torch.tensor([[1.0], [0.0]], dtype=torch.float64),
        torch.tensor([[3.0]], dtype=torch.float64).log(),
    )
    numeric = torch.tensor(labels.tolist(), dtype=torch.float64)
    got = quadratic_gradient(features, weights, numeric, "sequence")
    torch.testing.assert_close(got, torch.tensor([[0.0], [1 / 8]], dtype=torch.float64) * weights, rtol=1e-13, atol=1e-15)
    wrong = quadratic_gradient_of_paper(features, weights, numeric, "sequence")
    torch.testing.assert_close(wrong, -got, rtol=1e-13, atol=1e-15)


@pytest.mark.evidence("actor-corollary-2")
@given(tokens=st.integers(2, 6), width=st.integers(1, 4), seed=st.integers(0, 1000))
def test_formula_of_the_paper_is_the_gradient_of_no_function(tokens, width, seed):
    _, weights, labels = quadratic_problem(seed, tokens, width, "sequence")
    weights = weights - weights.trace() * torch.eye(width, dtype=torch.float64) / 3  # of either sign
    values, vectors = torch.linalg.eigh(weights)
    which = values.abs().argmax()
    t, direction = values[which], vectors[:, which]
    features = torch.outer(torch.eye(tokens, dtype=torch.float64)[0], direction)
    jacobian = torch.func.jacrev(lambda z: quadratic_gradient_of_paper(z, weights, labels, "sequence"))(features)
    along = torch.einsum("f,sfug,g->su", direction, jacobian, direction)
    total = t.exp() + tokens - 1
    curl = 2 * t * (1 / tokens - 1 / total + t * t.exp() / total**2)
    torch.testing.assert_close(along[0, 1] - along[1, 0], curl, rtol=1e-9, atol=1e-11)
    assert curl > 0


@pytest.mark.evidence("actor-corollary-2")
@given(tokens=st.integers(2, 5), seed=st.integers(0, 1000))
def test_printed_formula_agrees_iff_attention_symmetric_for_full_rank(tokens, seed):
    features, weights, labels = quadratic_problem(seed, tokens, tokens, "sequence")
    attention = softmax(features @ weights @ features.mT, "sequence")
    asymmetry = (attention - attention.mT).norm()
    gap = quadratic_gradient_of_paper(features, weights, labels, "sequence") - quadratic_gradient(
        features, weights, labels, "sequence"
    )
    least = torch.linalg.svdvals(features @ weights).min()
    assert gap.norm() >= least * asymmetry * (1 - 1e-9) - 1e-13  # no agreement without symmetry
    # a circulant score matrix has equal column sums
    angles = 2 * torch.pi * torch.arange(tokens, dtype=torch.float64) / tokens
    polygon, eye = torch.stack([angles.cos(), angles.sin()], -1), torch.eye(2, dtype=torch.float64)
    torch.testing.assert_close(
        quadratic_gradient_of_paper(polygon, eye, labels, "sequence"),
        quadratic_gradient(polygon, eye, labels, "sequence"),
        rtol=1e-12,
        atol=1e-13,
    )
