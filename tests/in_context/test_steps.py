import itertools
from fractions import Fraction

import mpmath
import pytest
import torch
from helpers import normal
from hypothesis import given
from hypothesis import strategies as st

from attnopt.in_context import (
    in_context_loss,
    marchenko_pastur_steps,
    optimal_step_sizes,
    sample_prompts,
    spectral_moments,
    step_loss,
)

SIZES = [(1, 3), (2, 2), (3, 7), (5, 20), (4, 2), (6, 1)]


def moments(dim, n_context, count):
    """E tr G^m as fractions."""
    return [Fraction(m, n_context**j) for j, m in enumerate(spectral_moments(dim, n_context, count))]


def least_loss(dim, n_context, k):
    """The minimum over polynomials with R(0) = 1 by eliminating in the normal equations, in fractions."""
    m = moments(dim, n_context, 2 * k + 1)
    rows = [[m[i + j + 2] for j in range(k)] + [m[i + 1]] for i in range(k)]
    for i in range(k):
        for other in range(k):
            if other != i:
                factor = rows[other][i] / rows[i][i]
                rows[other] = [x - factor * y for x, y in zip(rows[other], rows[i], strict=True)]
    return m[0] - sum(m[i + 1] * rows[i][-1] / rows[i][i] for i in range(k))


@pytest.mark.evidence("ahn-lemma-8")
@given(st.lists(st.floats(-2, 0.5), min_size=1, max_size=5), st.integers(1, 6), st.integers(1, 8), st.randoms())
def test_order_of_the_layers_does_not_matter_on_S(steps, dim, n_context, random):
    shuffled = list(steps)
    random.shuffle(shuffled)
    first, second = step_loss(steps, dim, n_context), step_loss(shuffled, dim, n_context)
    assert torch.isclose(first, second, rtol=1e-9)
    assert first >= max(0, dim - n_context) * (1 - 1e-9)


@pytest.mark.evidence("ahn-lemma-8")
def test_order_of_the_layers_matters_off_S_and_only_there(generator):
    covariance = torch.tensor([[2.0, 0.4], [0.4, 0.5]], dtype=torch.float64)
    precision = torch.linalg.inv(covariance)
    prompts, targets = sample_prompts(50, covariance, 4, generator, precision)
    P = torch.zeros(3, 3, 3, dtype=torch.float64)
    P[:, 2, 2] = 1

    def loss(A):
        Q = torch.zeros_like(P)
        Q[:, :2, :2] = A
        return in_context_loss(prompts, targets, P, Q)

    on = torch.tensor([-0.2, -1.1, -0.6], dtype=torch.float64)[:, None, None] * precision
    off = on + 0.2 * normal(generator, 3, 2, 2)
    for order in itertools.permutations(range(3)):
        assert torch.isclose(loss(on[list(order)]), loss(on), rtol=1e-12)
    assert not torch.isclose(loss(off.flip(0)), loss(off), rtol=1e-3)


HAND = [
    (5, 20, 1, Fraction(15, 13)),
    (5, 20, 2, Fraction(1795, 4969)),
    (5, 20, 3, Fraction(12138645, 90852389)),
    (1, 2, 3, Fraction(1, 4)),
    (3, 4, 1, Fraction(12, 8)),
]


@pytest.mark.evidence("ahn-theorem-4")
@pytest.mark.parametrize(("dim", "n_context", "k", "expected"), HAND)
def test_least_loss_is_the_fraction_found_by_hand(dim, n_context, k, expected):
    assert optimal_step_sizes(dim, n_context, k)[1] == expected == least_loss(dim, n_context, k)


@pytest.mark.evidence("ahn-theorem-4", "ahn-infimum-attained")
@pytest.mark.parametrize(("dim", "n_context"), SIZES)
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_optimum_solves_the_least_squares_problem(dim, n_context, k, generator):
    steps, loss = optimal_step_sizes(dim, n_context, k)
    assert loss == least_loss(dim, n_context, k)
    assert (steps < 0).all()
    assert (steps.diff() < 0).all()  # distinct, in increasing magnitude
    assert step_loss(steps, dim, n_context) == pytest.approx(float(loss), rel=1e-9)
    point = steps.clone().requires_grad_()
    slope = torch.autograd.grad(step_loss(point, dim, n_context), point)[0]
    scale = float(loss) + 1
    assert (slope * steps).abs().max() < 1e-8 * scale
    hessian = torch.func.hessian(lambda a: step_loss(a * steps.abs(), dim, n_context))(steps / steps.abs())
    assert torch.linalg.eigvalsh(hessian)[0] > 0
    rivals = steps * (1 + 0.2 * normal(generator, 500, k))
    assert (step_loss(rivals, dim, n_context) >= float(loss) * (1 - 1e-10)).all()
    rivals = 3 * normal(generator, 500, k)
    assert (step_loss(rivals, dim, n_context) > float(loss)).all()


@pytest.mark.evidence("ahn-theorem-4")
@given(st.integers(1, 30), st.integers(1, 30))
def test_one_layer_is_shrunk_by_the_noise_of_its_examples(dim, n_context):
    steps, loss = optimal_step_sizes(dim, n_context, 1)
    assert steps[0] == pytest.approx(-n_context / (n_context + dim + 1))
    assert loss == Fraction(dim * (dim + 1), n_context + dim + 1)


def test_limit_loss_of_extreme_ratios():
    for ratio in (5e-324, 1e-200, 1e-3, 0.7, 1.0, 3.0, 1e200, 1e308):
        with mpmath.workdps(30):
            expected = float(1 / sum(mpmath.mpf(ratio) ** -j for j in range(4)))
        assert marchenko_pastur_steps(ratio, 3)[1] == pytest.approx(expected, rel=1e-14)
