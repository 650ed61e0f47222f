import pytest
import torch
from helpers import AXES, normal

from attnopt.regression import linear_gradient, pointwise_cross_entropy, stationary_margin
from attnopt.softmax import softmax


def descend(weights, labels, axis, steps=4000):
    """Gradient norm and feature norm after gradient descent with a step that cannot overshoot."""
    features = torch.zeros(labels.shape[0], weights.shape[1], dtype=torch.float64)
    rate = 2 / torch.linalg.matrix_norm(weights, 2) ** 2
    for _ in range(steps):
        features = features - rate * linear_gradient(features, weights, labels, axis)
    return linear_gradient(features, weights, labels, axis).norm().item(), features.norm().item()


@pytest.mark.parametrize("axis", AXES)
def test_positive_labels_have_a_minimiser(axis, generator):
    labels, weights = softmax(normal(generator, 3, 4), axis), normal(generator, 4, 2)
    assert stationary_margin(weights, labels, axis) >= labels.min().item() - 1e-9
    gradient_norm, _ = descend(weights, labels, axis)
    assert gradient_norm < 1e-9


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


def test_margin_decides_whether_descent_converges():
    triangle = torch.tensor([[1.0, 0.0], [-0.5, 0.8], [-0.5, -0.8], [0.1, 0.1]], dtype=torch.float64)
    corner, inside = torch.eye(4, dtype=torch.float64)[[0]], torch.eye(4, dtype=torch.float64)[[3]]
    assert stationary_margin(triangle, corner, "class") == 0
    assert stationary_margin(triangle, inside, "class") > 0.1
    gradient_norm, size = descend(triangle, inside, "class")
    assert gradient_norm < 1e-12
    assert size < 1
    gradient_norm, size = descend(triangle, corner, "class")
    assert gradient_norm > 1e-5
    assert size > 5


def test_margin_is_a_number_that_can_be_computed_by_hand():
    # one feature, weights -1, 0, 1, label in the middle: P = (p, 1 - 2p, p), smallest entry largest at p = 1/3
    weights = torch.tensor([[-1.0], [0.0], [1.0]], dtype=torch.float64)
    middle = torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64)
    assert stationary_margin(weights, middle, "class") == pytest.approx(1 / 3, abs=1e-9)
    # equal weight vectors on the sequence axis: only column sums matter, uniform P is best
    ones = torch.ones(2, 1, dtype=torch.float64)
    assert stationary_margin(ones, torch.eye(2, dtype=torch.float64), "sequence") == pytest.approx(1 / 2, abs=1e-9)


def test_a_slice_of_one_entry_leaves_nothing_to_choose():
    assert stationary_margin(torch.randn(3, 5).double(), torch.ones(1, 3).double(), "sequence") == pytest.approx(1)
    assert stationary_margin(torch.randn(1, 5).double(), torch.ones(3, 1).double(), "class") == pytest.approx(1)


def test_rounded_labels_are_no_obstacle():
    labels = torch.full((1, 3), 0.3333)
    assert stationary_margin(torch.ones(3, 1), labels, "class") == pytest.approx(1 / 3)


def test_bad_input_is_named():
    weights, labels = torch.ones(3, 2), torch.ones(1, 3) / 3
    with pytest.raises(ValueError, match="weights and labels must be matrices"):
        stationary_margin(weights[None], labels, "class")
    with pytest.raises(ValueError, match=r"labels must have shape \(..., 1, 4\) to match weights"):
        stationary_margin(torch.ones(4, 2), labels, "class")
    with pytest.raises(ValueError, match="labels must sum to 1 along the sequence axis"):
        stationary_margin(weights, labels, "sequence")
