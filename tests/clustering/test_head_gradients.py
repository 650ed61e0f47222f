import math

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from attnopt.clustering import Models, Task, closed_form_gradients, gelu_derivative
from attnopt.clustering.gradients import GELU_SLOPE

WEIGHTS = ("query", "value", "receptors", "assemblers")


def automatic(params, tokens, targets):
    """Gradients of the mean cross-entropy by automatic differentiation."""
    leaves = {name: params.weights[name].clone().requires_grad_() for name in WEIGHTS}
    logits = params.replace(**leaves).logits(tokens)
    labels = targets if targets.ndim == 2 else targets.expand(len(logits), -1)
    total = cross_entropy(logits.mT, labels, reduction="none").mean(1).sum()
    return dict(zip(WEIGHTS, torch.autograd.grad(total, tuple(leaves.values())), strict=True))


@pytest.mark.evidence("odonnat-gradients")
@given(
    p=st.integers(2, 5),
    length=st.integers(1, 5),
    dim=st.integers(1, 5),
    width=st.integers(1, 9),
    own=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_closed_form_is_the_derivative(p, length, dim, width, own, seed):
    generator = torch.Generator().manual_seed(seed)
    params = Models.random(3, p, length, dim, width, norm="unit", generator=generator)
    shape = (3, 6) if own else (6,)
    tokens = torch.randint(p, (*shape, length), generator=generator)
    targets = torch.randint(p, shape, generator=generator)
    ours, true = closed_form_gradients(params, tokens, targets), automatic(params, tokens, targets)
    assert set(ours) == set(WEIGHTS)
    for name in WEIGHTS:
        # where ξ comes close to 0 the gradient is large, and so is its rounding error
        torch.testing.assert_close(ours[name], true[name], rtol=1e-9, atol=1e-11 * (1 + true[name].abs().max().item()))


def test_small_gradients_keep_their_digits():
    """Two logits 80 apart: 1 - p̂ is 1e-35, far below the rounding error of p̂."""
    weights = {
        "token": torch.tensor([[[0.0, 1.0], [0.0, -1.0]]], dtype=torch.float64),
        "position": torch.tensor([[[1.0, -1.0]]], dtype=torch.float64),
        "query": torch.zeros(1, 2, dtype=torch.float64),
        "value": torch.tensor([[[1.0, 0.0], [40.0, 0.0]]], dtype=torch.float64),
        "receptors": torch.zeros(1, 1, 2, dtype=torch.float64),
        "assemblers": torch.zeros(1, 2, 1, dtype=torch.float64),
    }
    value = closed_form_gradients(Models(weights, "unit"), torch.tensor([[0]]), torch.tensor([0]))["value"][0]
    expected = torch.tensor([[0.0, 0.0], [-2 / (1 + math.exp(80)), 0.0]], dtype=torch.float64)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)


def test_nothing_passes_through_the_normalization_where_the_sequence_vanishes(generator):
    params = Models.random(1, 2, 3, 2, 4, norm="unit", generator=generator)
    params.weights["value"] = torch.zeros_like(params.weights["value"])
    tokens, targets = Task(2, 3, 2).all()
    found = closed_form_gradients(params, tokens, targets)
    stages = params.stages(tokens)
    logits = stages["logits"]
    pull = (logits.softmax(-1) - torch.nn.functional.one_hot(targets, 2)) @ params.weights["token"]
    torch.testing.assert_close(found["value"], pull.mT @ stages["mixture"] / 8)  # as without the layer
    for name in ("query", "receptors", "assemblers"):
        assert found[name].abs().max() == 0


@pytest.mark.evidence("odonnat-eq-28")
def test_slope_of_gelu():
    grid = torch.linspace(-8, 8, 4001, dtype=torch.float64, requires_grad=True)
    slope = torch.autograd.grad(torch.nn.functional.gelu(grid).sum(), grid)[0]
    torch.testing.assert_close(gelu_derivative(grid.detach()), slope)
    with mpmath.workdps(30):

        def derivative(x):
            return mpmath.ncdf(x) + x * mpmath.npdf(x)

        top = derivative(mpmath.sqrt(2))
        assert pytest.approx(float(top), rel=1e-15) == GELU_SLOPE
        assert float(derivative(-mpmath.sqrt(2))) == pytest.approx(1 - GELU_SLOPE, rel=1e-13)
        assert abs(mpmath.diff(derivative, mpmath.sqrt(2))) < 1e-20
    assert slope.max() <= GELU_SLOPE
    assert slope.max() > GELU_SLOPE - 1e-5
