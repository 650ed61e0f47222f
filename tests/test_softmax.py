import math

import pytest
import torch
from helpers import AXES, matrices, normal
from hypothesis import given
from hypothesis import strategies as st

from attnopt.softmax import logsumexp, softmax, softmax_jacobian


@pytest.mark.evidence("actor-lemma-1")
@pytest.mark.parametrize("axis", AXES)
@given(x=matrices())
def test_gradient_of_logsumexp_is_softmax(x, axis):
    by_autograd = torch.func.grad(lambda x: logsumexp(x, axis).sum())(x)
    torch.testing.assert_close(softmax(x, axis), by_autograd, rtol=1e-12, atol=1e-14)


@pytest.mark.evidence("actor-theorem-1")
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(0, 1000))
def test_tensor_derivative_of_logsumexp(tokens, width, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    features, weights = normal(generator, tokens, width), normal(generator, classes, width)
    by_columns = torch.func.jacrev(lambda z: logsumexp(z @ weights.mT, "sequence"))(features)
    attention = softmax(features @ weights.mT, "sequence")
    torch.testing.assert_close(by_columns, attention.mT[:, :, None] * weights[:, None, :], rtol=1e-12, atol=1e-14)
    by_rows = torch.func.jacrev(lambda z: logsumexp(z @ weights.mT, "class"))(features)
    output = softmax(features @ weights.mT, "class") @ weights
    expected = torch.eye(tokens, dtype=torch.float64)[:, :, None] * output[None]
    torch.testing.assert_close(by_rows, expected, rtol=1e-12, atol=1e-14)


def test_jacobian_norm_reaches_one_half_for_two_classes_only_in_the_limit_for_three():
    half = torch.tensor([0.5, 0.5], dtype=torch.float64)
    assert math.isclose(torch.linalg.matrix_norm(softmax_jacobian(half), 2).item(), 0.5, rel_tol=1e-15)
    for leak in (1e-2, 1e-4, 1e-6):
        three = torch.tensor([(1 - leak) / 2, (1 - leak) / 2, leak], dtype=torch.float64)
        norm = torch.linalg.matrix_norm(softmax_jacobian(three), 2).item()
        assert 0.5 - leak < norm < 0.5


def test_jacobian_wants_probabilities():
    good = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], dtype=torch.float64)  # zeros are probabilities
    assert torch.equal(softmax_jacobian(good)[1], torch.zeros(3, 3, dtype=torch.float64))
    for bad in ([0.25, 0.25, 0.25], [0.5, 0.5, 0.5], [1.5, -0.5, 0.0], [0.5, 0.5, 1e-7]):
        for rows in ([bad], [good[0].tolist(), bad], [bad, good[0].tolist()]):
            with pytest.raises(ValueError, match="probabilities must not be negative and sum to 1, got .* off by"):
                softmax_jacobian(torch.tensor(rows, dtype=torch.float64))
    softmax_jacobian(torch.tensor([0.5, 0.5, 1e-9], dtype=torch.float64))  # within the root of the dtype's epsilon
    softmax_jacobian(torch.softmax(torch.arange(50.0), 0))  # float32 sums to 1 up to rounding
