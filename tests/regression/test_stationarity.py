import math

import numpy as np
import pytest
import torch
from helpers import AXES, normal
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from attnopt.regression import linear_gradient, pointwise_cross_entropy, separation_margin, stationary_margin
from attnopt.softmax import softmax


def descend(weights, labels, axis, steps=4000):
    """Gradient norm and feature norm after gradient descent with a step that cannot overshoot."""
    features = torch.zeros(labels.shape[0], weights.shape[1], dtype=torch.float64)
    rate = 2 / torch.linalg.matrix_norm(weights, 2) ** 2
    for _ in range(steps):
        features = features - rate * linear_gradient(features, weights, labels, axis)
    return linear_gradient(features, weights, labels, axis).norm().item(), features.norm().item()


@pytest.mark.evidence("actor-stationarity")
@pytest.mark.parametrize("axis", AXES)
def test_positive_labels_have_a_minimiser(axis, generator):
    labels, weights = softmax(normal(generator, 3, 4), axis), normal(generator, 4, 2)
    assert stationary_margin(weights, labels, axis) >= labels.min().item() - 1e-9
    gradient_norm, _ = descend(weights, labels, axis)
    assert gradient_norm < 1e-9


@pytest.mark.evidence("actor-stationarity")
@pytest.mark.parametrize("axis", AXES)
def test_one_hot_labels_and_independent_weights_have_no_minimiser(axis, generator):
    labels, weights = torch.eye(3, dtype=torch.float64), normal(generator, 3, 5)
    assert stationary_margin(weights, labels, axis) == 0
    # The features that separate perfectly push the loss towards zero and never reach it.
    direction = torch.linalg.pinv(weights).mT
    torch.testing.assert_close(direction @ weights.mT, labels)
    losses = [pointwise_cross_entropy(size * direction @ weights.mT, labels, axis).item() for size in (1, 5, 20)]
    assert losses[0] > losses[1] > losses[2] > 0
    assert losses[2] < 1e-7


def test_margin_is_a_number_that_can_be_computed_by_hand():
    # one feature, weights -1, 0, 1, label in the middle: P = (p, 1 - 2p, p), smallest entry largest at p = 1/3
    weights = torch.tensor([[-1.0], [0.0], [1.0]], dtype=torch.float64)
    middle = torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64)
    assert stationary_margin(weights, middle, "class") == pytest.approx(1 / 3, abs=1e-9)
    # equal weight vectors on the sequence axis: only column sums matter, uniform P is best
    ones = torch.ones(2, 1, dtype=torch.float64)
    assert stationary_margin(ones, torch.eye(2, dtype=torch.float64), "sequence") == pytest.approx(1 / 2, abs=1e-9)


def slices(labels, axis):
    """For each slice of one-hot labels: (token, class) of its label, and of all its other entries."""
    tokens, classes = labels.shape
    for s, k in labels.nonzero().tolist():
        others = [(s, j) for j in range(classes) if j != k] if axis == "class" else [(i, k) for i in range(tokens) if i != s]
        yield (s, k), others


def random_one_hot(generator, tokens, classes, axis):
    """One label in each slice."""
    length, count = (classes, tokens) if axis == "class" else (tokens, classes)
    rows = torch.eye(length).double()[torch.randint(length, (count,), generator=generator)]
    return rows if axis == "class" else rows.mT.contiguous()


def largest_margin(weights, labels, axis):
    """The primal program: the shortest features that lift every label by 1 have norm 1/γ; None if there are none."""
    shape = labels.shape[0], weights.shape[1]

    def lifts(flat):
        logits = flat.reshape(shape) @ weights.numpy().T
        return np.array([logits[label] - logits[other] for label, others in slices(labels, axis) for other in others])

    rows = np.stack([lifts(unit) for unit in np.eye(shape[0] * shape[1])], 1)
    feasible = linprog(np.zeros(rows.shape[1]), A_ub=-rows, b_ub=-np.ones(len(rows)), bounds=(None, None))
    if feasible.status != 0:
        return None
    constraint = {"type": "ineq", "fun": lambda z: lifts(z) - 1, "jac": lambda _: rows}
    found = minimize(
        lambda z: z @ z,
        feasible.x,
        jac=lambda z: 2 * z,
        constraints=constraint,
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    assert lifts(found.x).min() > 1 - 1e-7
    return 1 / np.linalg.norm(found.x)


@pytest.mark.parametrize("axis", AXES)
@given(tokens=st.integers(2, 3), classes=st.integers(2, 3), width=st.integers(1, 4), seed=st.integers(0, 1000))
def test_separation_margin_is_the_largest_margin(axis, tokens, classes, width, seed):
    generator = torch.Generator().manual_seed(seed)
    weights, labels = normal(generator, classes, width), random_one_hot(generator, tokens, classes, axis)
    margin, expected = separation_margin(weights, labels, axis), largest_margin(weights, labels, axis)
    if expected is None:
        assert margin == 0
    else:
        assert margin == pytest.approx(expected, rel=1e-5)
        assert stationary_margin(weights, labels, axis) == 0
    if axis == "class" and margin > 0:  # tokens do not meet: 1/γ² is the sum over tokens
        alone = [separation_margin(weights, row[None], "class") for row in labels]
        assert margin**-2 == pytest.approx(sum(m**-2 for m in alone), rel=1e-8)


def test_separation_margin_by_hand():
    weights = torch.tensor([[3.0], [1.0], [-1.0]], dtype=torch.float64)
    eye = torch.eye(3, dtype=torch.float64)
    assert separation_margin(weights, eye[[0]], "class") == pytest.approx(2, rel=1e-12)
    assert separation_margin(weights, eye[[2]], "class") == pytest.approx(2, rel=1e-12)
    # two tokens, one class: D = (θ, -θ), so the margin is √2‖θ‖
    wide, first = torch.tensor([[3.0, 4.0]], dtype=torch.float64), torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    assert separation_margin(wide, first, "sequence") == pytest.approx(5 * 2**0.5, rel=1e-12)
    # identity labels and orthonormal weights: γ² = 1/(n - 1) on both axes
    for n, axis in ((2, "class"), (4, "class"), (2, "sequence"), (4, "sequence")):
        identity = torch.eye(n, dtype=torch.float64)
        assert separation_margin(identity, identity, axis) == pytest.approx((n - 1) ** -0.5, rel=1e-12)
    assert separation_margin(weights.float(), eye[[0]].float(), "class") == pytest.approx(2, rel=1e-6)
    assert type(separation_margin(weights, eye[[0]], "class")) is float


def test_a_margin_below_the_resolution_counts_as_none():
    # independent weights force P = C, so the margin is the smallest label
    for smallest, expected in ((1e-5, 1e-5), (5e-8, 0)):
        labels = torch.tensor([[1 - 2 * smallest, smallest, smallest]], dtype=torch.float64)
        margin = stationary_margin(torch.eye(3, dtype=torch.float64), labels, "class")
        assert margin == pytest.approx(expected, rel=1e-2, abs=0)
        assert type(margin) is float


def test_separation_margin_is_zero_when_not_separable(generator):
    eye = torch.eye(4, dtype=torch.float64)
    inside = torch.tensor([[0.1, 0.1], [1.0, 0.0], [-0.5, 0.8], [-0.5, -0.8]], dtype=torch.float64)
    on_the_edge = torch.tensor([[0.0, 0.0], [-1.0, 0.0], [2.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    twice = torch.tensor([[1.0, 0.3], [1.0, 0.3], [2.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    for weights in (inside, on_the_edge, twice):
        assert separation_margin(weights, eye[[0]], "class") == 0
    # on the edge there is no minimiser either: neither margin is positive
    assert stationary_margin(on_the_edge, eye[[0]], "class") == 0
    assert stationary_margin(inside, eye[[0]], "class") > 0.01
    # one unfit token is enough; the tokens that fit do not help
    assert separation_margin(inside, eye[[1]], "class") > 0.1
    assert separation_margin(inside, eye[[1, 0]], "class") == 0
    # on the sequence axis equal weights with different labels ask for the opposite
    both = torch.tensor([[1.0, 2.0], [1.0, 2.0]], dtype=torch.float64)
    assert separation_margin(both, torch.eye(2, dtype=torch.float64), "sequence") == 0
    same = torch.tensor([[1.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    assert separation_margin(both, same, "sequence") > 1
    # small margins count, whatever the unit of the weights
    near = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    assert separation_margin(1e-9 * near, torch.eye(2, dtype=torch.float64)[[0]], "class") == pytest.approx(1e-9, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"labels": torch.ones(1, 3) / 3}, ValueError, "labels must be one-hot along the class axis, got an entry 0.333"),
        (
            {"labels": torch.tensor([[1.0, 1e-5, 0.0]])},
            ValueError,
            "labels must be one-hot along the class axis, got an entry 1e-05",
        ),
        ({"axis": "sequence"}, ValueError, "labels must sum to 1 along the sequence axis"),
        ({"axis": "sequence", "labels": torch.ones(1, 3)}, ValueError, "two or more entries along the sequence axis"),
        (
            {"weights": torch.ones(1, 2), "labels": torch.ones(4, 1)},
            ValueError,
            r"two or more entries along the class axis.*\(4, 1\)",
        ),
        ({"weights": torch.ones(1, 3, 2)}, ValueError, "weights and labels must be matrices"),
        ({"labels": torch.eye(3)[None]}, ValueError, "weights and labels must be matrices"),
        ({"weights": torch.ones(4, 2)}, ValueError, r"labels must have shape \(..., 1, 4\) to match weights"),
        ({"labels": torch.ones(1, 3)}, ValueError, "labels must sum to 1 along the class axis, got a sum of 3"),
        ({"weights": torch.full((3, 2), math.nan)}, ValueError, "weights must be finite"),
        ({"weights": torch.ones(3, 2).double()}, TypeError, "labels must have the dtype of weights"),
        ({"axis": "token"}, ValueError, "axis must be"),
    ],
)
def test_bad_input_of_the_separation_margin_is_named(changes, error, message):
    arguments = {"weights": torch.ones(3, 2), "labels": torch.eye(3)[[0]], "axis": "class"}
    with pytest.raises(error, match=message):
        separation_margin(**arguments | changes)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9, 1e14])
def test_separation_does_not_depend_on_the_unit_of_the_weights(scale):
    unit = torch.tensor([[0.1, 0.1], [1.0, 0.0], [-0.5, 0.8], [-0.5, -0.8]], dtype=torch.float64)
    inside, corner = torch.eye(4, dtype=torch.float64)[[0]], torch.eye(4, dtype=torch.float64)[[1]]
    assert separation_margin(scale * unit, inside, "class") == 0
    assert separation_margin(scale * unit, corner, "class") == pytest.approx(
        scale * separation_margin(unit, corner, "class")
    )


@pytest.mark.parametrize(
    ("lifts", "spread", "margin"),
    [
        (1e-5, [1000.0, -1.0], 0.0),  # less than 1e-7 of the largest derivative, 1000 long
        (3e-4, [1000.0, -1.0], 3e-4),
        (2e-7, torch.linspace(-1, 1, 25).tolist(), 2e-7),  # 25 derivatives, none longer than 1
        (5e-8, torch.linspace(-1, 1, 25).tolist(), 0.0),
    ],
)
def test_separation_margin_is_resolved_to_a_part_of_the_longest_derivative(lifts, spread, margin):
    others = torch.tensor([[-lifts, -side] for side in spread], dtype=torch.float64)
    weights = torch.cat([torch.zeros(1, 2, dtype=torch.float64), others])
    label = torch.eye(len(weights), dtype=torch.float64)[[0]]
    assert separation_margin(weights, label, "class") == pytest.approx(margin, rel=0.05, abs=0)
