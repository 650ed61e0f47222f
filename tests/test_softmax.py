import math

import mpmath
import pytest
import torch
from helpers import AXES, matrices, normal, precise_gradient, product, transpose
from hypothesis import given
from hypothesis import strategies as st

from attnopt.softmax import logsumexp, smooth_maximum, softmax, softmax_jacobian


def precise_logsumexp(rows, axis):
    """LSE of each slice of a nested list."""
    slices = transpose(rows) if axis == "sequence" else rows
    return [mpmath.log(mpmath.fsum(mpmath.exp(x) for x in part)) for part in slices]


@pytest.mark.evidence("actor-lemma-1")
@pytest.mark.parametrize("axis", AXES)
@given(x=matrices())
def test_gradient_of_logsumexp_is_softmax(x, axis):
    by_autograd = torch.func.grad(lambda x: logsumexp(x, axis).sum())(x)
    torch.testing.assert_close(softmax(x, axis), by_autograd, rtol=1e-12, atol=1e-14)


@pytest.mark.evidence("actor-lemma-1")
@pytest.mark.parametrize("axis", AXES)
def test_gradient_of_logsumexp_in_high_precision(axis, generator):
    x = normal(generator, 3, 4)
    slope = precise_gradient(lambda rows: mpmath.fsum(precise_logsumexp(rows, axis)), x)
    torch.testing.assert_close(softmax(x, axis), slope, rtol=1e-13, atol=0)


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


@pytest.mark.evidence("actor-theorem-1")
def test_tensor_derivative_in_high_precision(generator):
    features, weights = normal(generator, 2, 3), normal(generator, 4, 3)
    attention = softmax(features @ weights.mT, "sequence")
    for c in range(4):
        slope = precise_gradient(
            lambda z, c=c: precise_logsumexp(product(z, transpose(weights.tolist())), "sequence")[c], features
        )
        torch.testing.assert_close(attention[:, c, None] * weights[c], slope, rtol=1e-13, atol=1e-16)


@pytest.mark.parametrize("axis", AXES)
@given(x=matrices(), shift=st.floats(-50, 50))
def test_common_shift(x, shift, axis):
    torch.testing.assert_close(softmax(x + shift, axis), softmax(x, axis), rtol=1e-11, atol=1e-14)
    torch.testing.assert_close(logsumexp(x + shift, axis), logsumexp(x, axis) + shift, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("axis", AXES)
@given(x=matrices(batch=st.just(())))
def test_axes_are_each_others_transposes(x, axis):
    other = AXES[1 - AXES.index(axis)]
    torch.testing.assert_close(softmax(x.mT, other).mT, softmax(x, axis), rtol=1e-13, atol=1e-16)
    torch.testing.assert_close(logsumexp(x.mT, other), logsumexp(x, axis), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("axis", AXES)
def test_extreme_scores_stay_finite(axis):
    for size in (1e4, 1e30, 1e300):
        x = torch.tensor([[size, -size], [0.0, size]], dtype=torch.float64)
        assert logsumexp(x, axis).isfinite().all()
        assert torch.allclose(softmax(x, axis).sum(-2 if axis == "sequence" else -1), torch.ones(2, dtype=torch.float64))


@given(matrices(rows=st.just(1)))
def test_jacobian_is_autograds_and_a_covariance(x):
    scores = x.reshape(-1)
    probabilities = torch.softmax(scores, -1)
    jacobian = softmax_jacobian(probabilities)
    by_autograd = torch.func.jacrev(lambda x: torch.softmax(x, -1))(scores)
    torch.testing.assert_close(jacobian, by_autograd, rtol=1e-11, atol=1e-13)
    eigenvalues, vectors = torch.linalg.eigh(jacobian)
    assert eigenvalues.min() >= -1e-14
    assert eigenvalues.max() <= 0.5 + 1e-14
    assert jacobian.sum(-1).abs().max() < 1e-14
    v = vectors[:, -1]
    draws_variance = (probabilities * v**2).sum() - (probabilities * v).sum() ** 2
    torch.testing.assert_close(eigenvalues[-1], draws_variance, rtol=1e-9, atol=1e-14)


def test_jacobian_norm_reaches_one_half_for_two_classes_only_in_the_limit_for_three():
    half = torch.tensor([0.5, 0.5], dtype=torch.float64)
    assert math.isclose(torch.linalg.matrix_norm(softmax_jacobian(half), 2).item(), 0.5, rel_tol=1e-15)
    for leak in (1e-2, 1e-4, 1e-6):
        three = torch.tensor([(1 - leak) / 2, (1 - leak) / 2, leak], dtype=torch.float64)
        norm = torch.linalg.matrix_norm(softmax_jacobian(three), 2).item()
        assert 0.5 - leak < norm < 0.5


@given(matrices(), st.sampled_from([0.01, 0.3, 1.0, 20.0]))
def test_smooth_maximum_lies_between_its_bounds_and_grows(scores, temperature):
    top, value = scores.amax(-1), smooth_maximum(scores, temperature)
    slack = 1e-12 * (1 + top.abs() + temperature)
    assert (value >= top - slack).all()
    assert (value <= top + temperature * math.log(scores.shape[-1]) + slack).all()
    assert (smooth_maximum(scores, 1.5 * temperature) >= value - slack).all()


def test_smooth_maximum_in_high_precision_and_its_rate(generator):
    scores = normal(generator, 5)
    for temperature in (0.2, 1.0, 4.0):
        with mpmath.workdps(40):
            value = lambda t: t * mpmath.log(mpmath.fsum(mpmath.exp(mpmath.mpf(x) / t) for x in scores.tolist()))  # noqa: E731
            exact, rate = float(value(mpmath.mpf(temperature))), float(mpmath.diff(value, mpmath.mpf(temperature)))
        assert smooth_maximum(scores, temperature).item() == pytest.approx(exact, rel=1e-14)
        entropy = torch.special.entr(torch.softmax(scores / temperature, -1)).sum().item()
        assert rate == pytest.approx(entropy, rel=1e-10)


def test_single_precision_agrees_with_double(generator):
    x = normal(generator, 3, 6, 5)
    for axis in AXES:
        torch.testing.assert_close(softmax(x.float(), axis).double(), softmax(x, axis), rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(logsumexp(x.float(), axis).double(), logsumexp(x, axis), rtol=1e-5, atol=1e-6)


GOOD = torch.ones(2, 3)


@pytest.mark.parametrize("function", [softmax, logsumexp])
@pytest.mark.parametrize(
    ("logits", "axis", "error", "message"),
    [
        (GOOD, "row", ValueError, "axis must be .* got 'row'"),
        (GOOD, -1, ValueError, "axis must be .* got -1"),
        ([[1.0]], "class", TypeError, "logits must be a torch.Tensor, got list"),
        (torch.ones(2, 3, dtype=torch.long), "class", TypeError, "logits must have a real floating-point dtype"),
        (torch.ones(2, 3, dtype=torch.complex64), "class", TypeError, "logits must have a real floating-point dtype"),
        (torch.ones(3), "class", ValueError, r"logits must be a matrix .* got shape \(3,\)"),
        (torch.ones(0, 3), "class", ValueError, r"logits must not be empty, got shape \(0, 3\)"),
        (torch.tensor([[0.0, torch.nan]]), "class", ValueError, "logits must be finite, got nan"),
        (torch.tensor([[0.0, -torch.inf]]), "class", ValueError, "logits must be finite, got -inf"),
    ],
)
def test_bad_input_is_named(function, logits, axis, error, message):
    with pytest.raises(error, match=message):
        function(logits, axis)


def test_bad_temperature_and_empty_scores_are_named():
    for temperature in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="temperature must be positive and finite"):
            smooth_maximum(torch.ones(3), temperature)
    for scores in (torch.tensor(1.0), torch.ones(2, 0)):
        with pytest.raises(ValueError, match="scores must"):
            smooth_maximum(scores, 1.0)
        with pytest.raises(ValueError, match="probabilities must"):
            softmax_jacobian(scores)


def test_jacobian_wants_probabilities():
    good = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], dtype=torch.float64)  # zeros are probabilities
    assert torch.equal(softmax_jacobian(good)[1], torch.zeros(3, 3, dtype=torch.float64))
    for bad in ([0.25, 0.25, 0.25], [0.5, 0.5, 0.5], [1.5, -0.5, 0.0], [0.5, 0.5, 1e-7]):
        for rows in ([bad], [good[0].tolist(), bad], [bad, good[0].tolist()]):
            with pytest.raises(ValueError, match="probabilities must not be negative and sum to 1, got .* off by"):
                softmax_jacobian(torch.tensor(rows, dtype=torch.float64))
    softmax_jacobian(torch.tensor([0.5, 0.5, 1e-9], dtype=torch.float64))  # within the root of the dtype's epsilon
    softmax_jacobian(torch.softmax(torch.arange(50.0), 0))  # float32 sums to 1 up to rounding
