import math
from functools import partial

import numpy as np
import pytest
import torch
from helpers import AXES, loss, model_problem, normal
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from attnopt.regression import (
    block_step,
    feature_flow,
    unroll,
)
from attnopt.softmax import softmax

double = partial(torch.tensor, dtype=torch.float64)
MODELS = ("linear", "quadratic")
SCHEMES = ("euler", "printed", "lie", "strang")
BOTH = [(model, axis) for model in MODELS for axis in AXES]
problem = partial(model_problem, tokens=4, width=3, divisor=4)


def slope(features, weights, labels, axis, model="linear"):
    """Its gradient by autograd."""
    return torch.func.grad(lambda z: loss(z, weights, labels, axis, model).sum())(features)


def follow_labels(features, weights, labels, model, time):
    """The labels' half of the flow: a shift, or the exponential of a matrix that acts on all entries at once."""
    if model == "linear":
        return features + time * labels @ weights
    matrix = torch.kron(labels + labels.mT, weights.mT.contiguous())
    return (torch.matrix_exp(time * matrix) @ features.flatten()).reshape(features.shape)


def follow_attention(features, weights, labels, axis, model, time):
    """Attention's half of the flow, by SciPy; its field is minus the gradient with the labels' field taken out."""

    def velocity(_, flat):
        z = torch.from_numpy(flat).reshape(features.shape)
        keys = weights if model == "linear" else z @ weights
        given = labels @ keys if model == "linear" else (labels + labels.mT) @ keys
        return (-slope(z, weights, labels, axis, model) - given).numpy().ravel()

    end = solve_ivp(velocity, (0, time), features.numpy().ravel(), method="DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
    return torch.from_numpy(end).reshape(features.shape)


@pytest.mark.evidence("actor-splitting-linear")
@pytest.mark.parametrize("axis", AXES)
@given(
    tokens=st.integers(1, 4),
    width=st.integers(1, 4),
    classes=st.integers(1, 4),
    step=st.sampled_from([1.0, 0.3, 2.5]),
    batch=st.sampled_from([(), (2,), (2, 1)]),
    seed=st.integers(0, 1000),
)
def test_cross_attention_block_is_gradient_descent(axis, tokens, width, classes, step, batch, seed):
    generator = torch.Generator().manual_seed(seed)
    features, weights = normal(generator, *batch, tokens, width), normal(generator, classes, width)
    labels = softmax(normal(generator, tokens, classes), axis)
    descended = features - step * slope(features, weights, labels, axis)
    for scheme in ("euler", "printed"):
        layer = block_step(features, weights, labels, axis, step, scheme)
        torch.testing.assert_close(layer, descended, rtol=1e-11, atol=1e-12)
    default = block_step(features, weights, labels, axis)
    torch.testing.assert_close(default, features - slope(features, weights, labels, axis), rtol=1e-11, atol=1e-12)
    by_hand = features
    for _ in range(4):
        by_hand = by_hand - step * slope(by_hand, weights, labels, axis)
    layers = unroll(features, weights, labels, axis, 4, step, "printed")
    assert layers.shape == (5, *batch, tokens, width)
    torch.testing.assert_close(layers[-1], by_hand, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(layers[0], features, rtol=0, atol=0)


@pytest.mark.parametrize("axis", AXES)
def test_quadratic_euler_block_is_gradient_descent(axis, generator):
    features, weights, labels = problem(generator, "quadratic", axis)
    descended = features - 0.7 * slope(features, weights, labels, axis, "quadratic")
    layer = block_step(features, weights, labels, axis, 0.7, model="quadratic")
    torch.testing.assert_close(layer, descended, rtol=1e-12, atol=1e-13)


@pytest.mark.evidence("actor-splitting-linear")
@pytest.mark.parametrize(("model", "axis"), BOTH)
def test_orders_of_the_schemes(model, axis, generator):
    features, weights, labels = problem(generator, model, axis)
    exact = feature_flow(features, weights, labels, axis, double([1.0]), model)[0]
    for scheme, order in (("euler", 1), ("lie", 1), ("strang", 2)):
        gaps = []
        for depth in (32, 64, 128):
            end = unroll(features, weights, labels, axis, depth, 1 / depth, scheme, model)[-1]
            gaps.append((end - exact).norm().item())
        assert gaps[0] < 0.3
        assert math.log2(gaps[1] / gaps[2]) == pytest.approx(order, abs=0.1)
        assert abs(math.log2(gaps[1] / gaps[2]) - order) < abs(math.log2(gaps[0] / gaps[1]) - order) + 0.02
    # each layer is made of the halves it says, in that order, up to the fifth order of a Runge-Kutta step
    attention = lambda z, time: follow_attention(z, weights, labels, axis, model, time)  # noqa: E731
    shift = lambda z, time: follow_labels(z, weights, labels, model, time)  # noqa: E731
    for scheme in ("lie", "strang"):
        gaps = []
        for step in (0.1, 0.05):
            before, after = (0, step) if scheme == "lie" else (step / 2, step / 2)
            halves = shift(attention(shift(features, before), step), after)
            gaps.append((block_step(features, weights, labels, axis, step, scheme, model) - halves).norm().item())
        assert gaps[0] < 1e-3
        assert math.log2(gaps[0] / gaps[1]) == pytest.approx(5, abs=0.6)


@pytest.mark.evidence("actor-splitting-quadratic")
@pytest.mark.parametrize("axis", AXES)
def test_printed_quadratic_block_follows_the_printed_flow(axis, generator):
    features, weights, labels = problem(generator, "quadratic", axis)
    true, printed = (feature_flow(features, weights, labels, axis, double([1.0]), "quadratic", p)[0] for p in (False, True))
    apart = (true - printed).norm().item()
    assert apart > 0.1
    ends = [unroll(features, weights, labels, axis, n, 1 / n, "printed", "quadratic")[-1] for n in (128, 256, 512)]
    gaps = [(end - printed).norm().item() for end in ends]
    assert math.log2(gaps[1] / gaps[2]) == pytest.approx(1, abs=0.1)
    limit = 2 * ends[2] - ends[1]  # the error's first order taken out
    assert (limit - printed).norm() < apart / 20
    assert (limit - true).norm().item() == pytest.approx(apart, rel=0.05)
    # what it would take: both attentions, then the labels
    ends = []
    for depth in (256, 512):
        z = features
        for _ in range(depth):
            attention = softmax(z @ weights @ z.mT, axis)
            z = z - (attention + attention.mT) @ z @ weights / depth
            z = z + (labels + labels.mT) @ z @ weights / depth
        ends.append(z)
    assert (2 * ends[1] - ends[0] - true).norm() < apart / 20


@pytest.mark.evidence("actor-splitting-quadratic")
@pytest.mark.parametrize("axis", AXES)
@given(tokens=st.integers(1, 4), width=st.integers(1, 4), seed=st.integers(0, 1000))
def test_printed_quadratic_block_is_eq_9(axis, tokens, width, seed):
    generator = torch.Generator().manual_seed(seed)
    root, z = normal(generator, width, width), normal(generator, tokens, width)
    weights = root @ root.mT / width + 0.1 * torch.eye(width).double()
    labels = softmax(normal(generator, tokens, tokens), axis)
    phi, target = np.linalg.cholesky(weights.numpy()), labels.numpy()

    def self_attention(x):
        exponentials = np.exp(x @ x.T)
        return exponentials / exponentials.sum(0 if axis == "sequence" else 1, keepdims=True) @ x

    for step in (1.0, 0.4):
        half = z.numpy() - step * 2 * self_attention(z.numpy() @ phi) @ phi.T
        whole = half + step * (target + target.T) @ half @ weights.numpy()
        layer = block_step(z, weights, labels, axis, step, "printed", "quadratic")
        torch.testing.assert_close(layer, torch.from_numpy(whole), rtol=1e-10, atol=1e-11)


@pytest.mark.evidence("actor-splitting-linear")
@pytest.mark.parametrize("axis", AXES)
@given(
    tokens=st.integers(1, 4),
    width=st.integers(1, 3),
    classes=st.integers(1, 4),
    norm=st.sampled_from([2.0, 1.9, 1.0]),
    hardness=st.sampled_from([0.5, 5.0, 1e3]),
    scale=st.sampled_from([0.1, 1.0, 10.0]),
    seed=st.integers(0, 1000),
)
def test_unit_step_descends_up_to_norm_two(axis, tokens, width, classes, norm, hardness, scale, seed):
    generator = torch.Generator().manual_seed(seed)
    weights = normal(generator, classes, width)
    weights = norm * weights / torch.linalg.matrix_norm(weights, 2)
    labels, start = softmax(hardness * normal(generator, tokens, classes), axis), scale * normal(generator, tokens, width)
    path = unroll(start, weights, labels, axis, 15)
    losses = loss(path, weights, labels, axis)
    assert (losses.diff() <= 1e-12 * (1 + losses[:-1])).all()
    # Taylor: ℓ falls by (1 - ‖θ‖²/4)‖∂ℓ‖² at least
    squares = slope(path, weights, labels, axis).square().sum((-2, -1))
    assert (losses.diff() <= -(1 - norm**2 / 4) * squares[:-1] + 1e-11 * (1 + losses[:-1])).all()
    # and a step h is safe for weights of norm 2/√h
    wide = unroll(start, 2 * weights / norm / 3**0.5, labels, axis, 15, 3.0)
    losses = loss(wide, 2 * weights / norm / 3**0.5, labels, axis)
    assert (losses.diff() <= 1e-12 * (1 + losses[:-1])).all()
    # the Hessian is at most ½‖θ‖²
    hessian = torch.func.hessian(lambda z: loss(z, weights, labels, axis))(start).reshape(start.numel(), -1)
    assert torch.linalg.eigvalsh(hessian)[-1] <= norm**2 / 2 + 1e-12


@pytest.mark.parametrize(("model", "axis"), BOTH)
def test_layer_dependent_weights(model, axis, generator):
    features, weights, labels = problem(generator, model, axis)
    several = [weights, weights / 2, -weights]
    for scheme in SCHEMES:
        path = unroll(features, several, labels, axis, 3, 0.5, scheme, model)
        z = features
        for layer, theta in enumerate(several):
            z = block_step(z, theta, labels, axis, 0.5, scheme, model)
            torch.testing.assert_close(path[layer + 1], z, rtol=1e-12, atol=1e-13)
        same = unroll(features, [weights] * 3, labels, axis, 3, 0.5, scheme, model)
        torch.testing.assert_close(
            same, unroll(features, weights, labels, axis, 3, 0.5, scheme, model), rtol=1e-12, atol=1e-13
        )
    # an Euler layer goes down its own cross-entropy
    path = unroll(features, several, labels, axis, 3, 0.05, "euler", model)
    for layer, theta in enumerate(several):
        before, after = (loss(z, theta, labels, axis, model) for z in path[layer : layer + 2])
        assert after < before
    # and may raise another's: of two classes, -θ pushes the features away from where θ wants them
    pair, label = double([[1.0, 0.0], [-0.5, 1.0]]), double([[1.0, 0.0]])
    path = unroll(double([[0.3, 0.2]]), [pair, -pair, pair], label, "class", 3)
    assert (loss(path, pair, label, "class").diff().sign() == double([-1, 1, -1])).all()
    assert (loss(path, -pair, label, "class").diff().sign() == double([1, -1, 1])).all()
    # batches of weights broadcast from the first layer on
    batch = unroll(features, [weights, torch.stack([weights, -weights])], labels, axis, 2, 0.5, model=model)
    assert batch.shape == (3, 2, *features.shape)
    torch.testing.assert_close(batch[:, 1], unroll(features, [weights, -weights], labels, axis, 2, 0.5, model=model))
    torch.testing.assert_close(batch[:, 0], unroll(features, weights, labels, axis, 2, 0.5, model=model))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": -1}, "layers must be at least 0, got -1"),
        ({"weights": [torch.ones(4, 2)] * 3}, r"one tensor or one per layer \(2\), got 3"),
        ({"weights": [torch.ones(4, 2)]}, r"one tensor or one per layer \(2\), got 1"),
        ({"weights": [torch.ones(4, 2), torch.ones(4, 3)]}, r"weights must have shape \(..., 4, 2\)"),
        ({"weights": [torch.ones(4, 2), torch.full((4, 2), math.nan)]}, "weights must be finite"),
        ({"weights": [torch.ones(2, 4, 2), torch.ones(3, 4, 2)]}, "must broadcast"),
    ],
)
def test_bad_layers_are_named(changes, message):
    arguments = {"features": torch.ones(3, 2), "weights": torch.ones(4, 2), "labels": torch.ones(3, 4) / 3}
    arguments |= {"axis": "sequence", "layers": 2} | changes
    with pytest.raises(ValueError, match=message):
        unroll(**arguments)


def test_no_layers_return_the_checked_features():
    features, weights, labels = torch.ones(3, 2), torch.ones(5, 4, 2), torch.ones(3, 4) / 4
    assert unroll(features, weights, labels, "class", 0).shape == (1, 5, 3, 2)
    with pytest.raises(ValueError, match="labels must sum to 1"):
        unroll(features, weights, 2 * labels, "class", 0)
