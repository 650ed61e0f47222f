import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import normal

from attnopt.in_context import gram_quadrature, optimal_step_sizes, prompt_losses, three_layer_certificate, three_layer_loss
from attnopt.in_context.three_layers import MONOMIALS, monomial_pairs

STORED = json.loads((Path(__file__).parents[2] / "results/three_layers.json").read_text(encoding="utf-8"))["certificate"]


def symmetric(entries):
    """Matrices of shape (..., 3, 2, 2) from the nine numbers that the polynomial takes."""
    a, b, c = entries.unflatten(-1, (3, 3)).unbind(-1)
    return torch.stack([a, b, b, c], -1).unflatten(-1, (2, 2))


def polynomial(n, entries):
    """The exact loss in floating point."""
    return sum(float(value) * (entries ** torch.tensor(powers)).prod(-1) for powers, value in three_layer_loss(n).items())


def stored():
    """The matrix of the certificate."""
    gram = torch.zeros(len(MONOMIALS), len(MONOMIALS), dtype=torch.float64)
    gram[*torch.tril_indices(*gram.shape)] = torch.tensor(STORED["gram"], dtype=torch.float64)
    return gram + gram.tril(-1).mT


@pytest.mark.parametrize("n", [1, 2, 20])
def test_polynomial_is_the_loss_by_quadrature(n, generator):
    entries = normal(generator, 5, 9)
    grams, mass = (torch.from_numpy(part.copy()) for part in gram_quadrature(2, n, 6))
    losses = prompt_losses(grams, symmetric(entries)[:, None]) @ mass
    torch.testing.assert_close(polynomial(n, entries), losses)


def test_pairs_of_monomials_have_the_same_number_exactly_if_their_products_agree(generator):
    entries = normal(generator, 9)
    values = torch.stack([(entries ** torch.tensor(powers)).prod() for powers in MONOMIALS])
    products, pairs = torch.outer(values, values), monomial_pairs()
    for number in range(pairs.max() + 1):
        same = products[torch.from_numpy(pairs == number)]
        torch.testing.assert_close(same, same[:1].expand_as(same))
    assert len(np.unique(products.numpy().round(9))) == pairs.max() + 1


@pytest.mark.evidence("ahn-theorem-3")
def test_no_symmetric_weights_of_three_layers_are_better_by_a_ten_thousandth():
    share = Fraction(STORED["share"])
    assert share == Fraction(9999, 10_000)
    bound = three_layer_certificate(20, stored(), share)
    assert bound == Fraction(STORED["bound"]) == share * optimal_step_sizes(2, 20, 3)[1]


@pytest.mark.parametrize("share", [Fraction(10_001, 10_000), Fraction(1001, 1000)])
def test_certificate_refuses_a_bound_above_the_optimum(share):
    with pytest.raises(ArithmeticError, match="not positive definite"):
        three_layer_certificate(20, stored(), share)


def test_certificate_refuses_the_matrix_of_another_size():
    with pytest.raises(ArithmeticError, match="not positive definite"):
        three_layer_certificate(3, stored(), Fraction(9999, 10_000))
    with pytest.raises(ValueError, match="gram must have shape"):
        three_layer_certificate(20, torch.eye(63, dtype=torch.float64), Fraction(1, 2))
