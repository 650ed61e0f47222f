import math

import mpmath
import pytest
import torch
from helpers import normal
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


@pytest.mark.evidence("odonnat-gradients")
def test_closed_form_by_differences_at_fifty_digits(generator):
    """A route that shares no code: the loss written out in mpmath, with central differences."""
    params = Models.random(1, 3, 3, 2, 2, norm="unit", generator=generator)
    tokens, targets = torch.tensor([[0, 2, 1], [1, 1, 2]]), torch.tensor([2, 0])
    ours = closed_form_gradients(params, tokens, targets)
    with mpmath.workdps(50):
        exact = {
            name: mpmath.matrix(value[0].reshape(-1, value.shape[-1]).tolist()) for name, value in params.weights.items()
        }

        def loss(weights):
            total = mpmath.mpf(0)
            for sequence, label in zip(tokens.tolist(), targets.tolist(), strict=True):
                z = []
                for t, token in enumerate(sequence):
                    column = weights["token"][token, :].T + weights["position"][t, :].T
                    z.append(column / mpmath.norm(column))
                scores = [mpmath.exp((weights["query"] * column)[0] / mpmath.sqrt(2)) for column in z]
                mixture = sum((score * column for score, column in zip(scores, z, strict=True)), mpmath.matrix(2, 1))
                xi = weights["value"] * (mixture / sum(scores))
                active = (weights["receptors"] * (xi / mpmath.norm(xi))).apply(lambda x: x * mpmath.ncdf(x))
                zeta = weights["token"] * (xi + weights["assemblers"] * active)
                total += mpmath.log(mpmath.fsum(mpmath.exp(x) for x in zeta)) - zeta[label]
            return total / 2

        step = mpmath.mpf(10) ** -18
        for name in WEIGHTS:
            matrix = exact[name]
            for i in range(matrix.rows):
                for j in range(matrix.cols):
                    values = []
                    for sign in (1, -1):
                        moved = matrix.copy()
                        moved[i, j] += sign * step
                        values.append(loss(exact | {name: moved}))
                    slope = float((values[0] - values[1]) / (2 * step))
                    found = ours[name][0].reshape(-1, matrix.cols)[i, j].item()
                    assert found == pytest.approx(slope, rel=1e-10, abs=1e-14)


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


def test_error_signal_is_all_that_the_labels_do(generator):
    """The gradients are linear in C_x: where two labelings have the same C_x they agree."""
    params = Models.random(1, 3, 4, 2, 5, norm="unit", generator=generator)
    params.weights["token"][0, 2] = params.weights["token"][0, 1]  # tokens 1 and 2 alike
    tokens = torch.randint(3, (5, 4), generator=generator)
    one, other = (closed_form_gradients(params, tokens, torch.full((5,), label)) for label in (1, 2))
    for name in WEIGHTS:
        torch.testing.assert_close(one[name], other[name], rtol=1e-12, atol=1e-14)


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


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"targets": torch.zeros(4)}, TypeError, "targets must be a tensor of integers"),
        ({"targets": torch.zeros(4, dtype=torch.bool)}, TypeError, "targets must be a tensor of integers"),
        ({"targets": [0, 1, 0, 1]}, TypeError, "targets must be a tensor of integers, got list"),
        ({"targets": torch.zeros(3, dtype=torch.long)}, ValueError, r"targets must have shape \(4,\) or \(2, 4\)"),
        ({"targets": torch.tensor([0, 1, 2, 0])}, ValueError, "targets must lie in 0 … 1, got 0 … 2"),
        ({"targets": torch.tensor([0, 1, -1, 0])}, ValueError, "targets must lie in 0 … 1"),
        ({"tokens": torch.zeros(4, 3)}, TypeError, "tokens must be a tensor of integers"),
        ({"tokens": torch.zeros(4, 2, dtype=torch.long)}, ValueError, "tokens must have shape"),
        ({"biases": True}, ValueError, "models must have no biases and the norm 'unit'"),
        ({"norm": "rms"}, ValueError, "models must have no biases and the norm 'unit'"),
    ],
)
def test_bad_input_is_named(change, error, message, generator):
    how = {"norm": "unit"} | {name: change[name] for name in ("biases", "norm") if name in change}
    params, change = Models.random(2, 2, 3, generator=generator, **how), {k: v for k, v in change.items() if k not in how}
    arguments = {"tokens": torch.zeros(4, 3, dtype=torch.long), "targets": torch.zeros(4, dtype=torch.long)} | change
    with pytest.raises(error, match=message):
        closed_form_gradients(params, **arguments)


def test_models_do_not_see_each_other(generator):
    params = Models.random(4, 3, 3, norm="unit", generator=generator)
    task = Task(3, 3, 2).all()
    together = closed_form_gradients(params, *task)
    for m in range(4):
        alone = closed_form_gradients(params[m], *task)
        for name in WEIGHTS:
            torch.testing.assert_close(alone[name][0], together[name][m])


def test_single_precision_stays_single(generator):
    params = Models.random(1, 2, 3, norm="unit", generator=generator, dtype=torch.float32)
    params.weights["query"] = normal(generator, 1, 2, dtype=torch.float32)
    for value in closed_form_gradients(params, *Task(2, 3, 2).all()).values():
        assert value.dtype == torch.float32
        assert value.isfinite().all()
