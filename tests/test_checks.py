"""What the checks of arguments let pass, what they refuse, and the numbers that they tell."""

import re

import pytest
import torch

from attnopt import checks


def double(values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("value", "above", "message"),
    [
        (double(0.5), 0.0, None),
        (1.5, 1.0, None),
        (double([0.5]), 0.0, "x must be a number"),
        (double(0.5).to("meta"), 0.0, "x must be a number"),
        (-1.0, 0.0, "x must be positive and finite, got -1.0"),
        (1.0, 1.0, "x must be more than 1 and finite, got 1.0"),
        (float("inf"), 1.0, "x must be more than 1 and finite, got inf"),
    ],
)
def test_numbers(value, above, message):
    if message is None:
        checks.check_number("x", value, above)
    else:
        with pytest.raises((TypeError, ValueError), match=re.escape(message)):
            checks.check_number("x", value, above)


@pytest.mark.parametrize(("values", "told"), [([0, 3], "0 … 3"), ([0, 1, 7, 2], "0 … 7"), ([-1, 2], "-1 … 2")])
def test_integers_out_of_range_are_told(values, told):
    checks.check_integers("x", torch.tensor([0, 1, 2]), 3)
    with pytest.raises(ValueError, match=re.escape(f"x must lie in 0 … 2, got {told}")):
        checks.check_integers("x", torch.tensor(values), 3)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_asymmetry_counts_beside_the_largest_entry(scale):
    """2^-26 is the square root of the smallest relative difference of doubles."""
    for side in (-1, 1):
        off = torch.zeros(3, 3, dtype=torch.float64)
        off[0, 1] = side * 2.0**-26
        checks.check_symmetric("x", scale * (torch.ones(3, 3).double() - off.abs()))
        with pytest.raises(ValueError, match="x must be symmetric, got a largest asymmetry of"):
            checks.check_symmetric("x", scale * torch.stack([torch.ones(3, 3).double(), torch.eye(3).double() + 2 * off]))


def test_the_worst_sum_of_labels_is_told():
    labels = double([[0.5, 0.5], [0.25, 0.75], [0.5, 0.25], [1, 0]])
    checks.check_labels(labels[[0, 1, 3]], "class")
    with pytest.raises(ValueError, match="labels must sum to 1 along the class axis, got a sum of 0.75"):
        checks.check_labels(labels, "class")
    edge = double([[0.5, 0.5 + 2.0**-26], [1, 0]])  # off by exactly the tolerance
    checks.check_labels(edge, "class")


def test_the_smallest_eigenvalue_is_told():
    good = torch.eye(2, dtype=torch.float64)
    checks.check_covariance("x", torch.stack([good, 3 * good]))
    with pytest.raises(ValueError, match="x must be positive definite, got a smallest eigenvalue of -2$"):
        checks.check_covariance("x", torch.stack([good, torch.diag(double([5, -2]))]))
