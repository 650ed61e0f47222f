"""Differences in shape at the best loop: the script's functions and what it stored, and the limit in many dimensions."""

import math
from fractions import Fraction

import loops_matrices as script
import numpy as np
import pytest
import torch
from scipy.linalg import eigh_tridiagonal
from scipy.optimize import brentq

from attnopt.in_context import gram_quadrature, prompt_losses, transverse_hessians
from attnopt.synthesis import tied_optimum, tied_rates


def curvature(dim, examples, layers, direction):
    """The Hessian along a unit matrix in each layer at the best loop, by differentiation."""
    grams, weights = (torch.from_numpy(part) for part in gram_quadrature(dim, examples, 2 * layers))
    loop = tied_optimum(dim, examples, layers)[0] * torch.eye(dim, dtype=torch.float64)

    def loss(moves):
        return prompt_losses(grams, loop + moves[:, None, None] * direction) @ weights

    return torch.autograd.functional.hessian(loss, torch.zeros(layers, dtype=torch.float64))


@pytest.mark.evidence("book-loops-matrices")
@pytest.mark.parametrize("size", [(2, 40, 4), (2, 40, 6), (2, 10, 5), (3, 15, 3)])
def test_ratios_are_those_of_the_differentiated_loss(size):
    dim = size[0]
    symmetric, turned = torch.zeros(2, dim, dim, dtype=torch.float64)
    symmetric[0, 0], symmetric[1, 1], turned[0, 1], turned[1, 0] = 0.5**0.5, -(0.5**0.5), 0.5**0.5, -(0.5**0.5)
    own = curvature(*size, torch.eye(dim, dtype=torch.float64) / dim**0.5)
    rate = -torch.linalg.eigvalsh(own)[0].item()
    others = [-torch.linalg.eigvalsh(curvature(*size, one))[0].item() / rate for one in (symmetric, turned)]
    assert script.ratios(*size) == pytest.approx((rate, *others), rel=1e-8)


@pytest.mark.evidence("book-loops-matrices")
@pytest.mark.parametrize("size", [(2, 20, 3), (2, 20, 5)])
def test_the_linearization_is_that_of_the_flow(size):
    """From noise a thousand times smaller the flow agrees with it, each kind apart, until spreads are a thousandth."""
    dim, examples, layers = size
    start = 1e-8 * np.random.default_rng(7).standard_normal((layers, dim, dim))
    times = np.linspace(0, 10 / tied_rates(dim, examples, layers)[1] * dim, 60)
    seen = script.spreads(script.flow(start, examples, times)[0])
    told = script.linearized(start, examples, times)
    small = (told < 1e-3).all(0)
    assert small.sum() > 20
    assert np.allclose(np.log(told[:, small]), np.log(seen[:, small]), atol=0.03)


def moments(ratio, layers):
    """Nodes and weights of the Marchenko–Pastur law, from its recurrence; the best loop's step."""
    diagonal = np.full(2 * layers + 3, 1 + ratio)
    diagonal[0] = 1
    nodes, vectors = eigh_tridiagonal(diagonal, np.full(len(diagonal) - 1, ratio**0.5))
    weights = vectors[0] ** 2
    step = brentq(lambda a: weights @ (nodes * (1 + a * nodes) ** (2 * layers - 1)), -1.5, 0, xtol=1e-15)
    return nodes, weights, step


def limits(ratio, layers):
    """The blocks H⁺ and H⁻ over κ/d, by the theorem's formula, integrals by quadrature."""
    nodes, weights, step = moments(ratio, layers)
    assert step == pytest.approx(-1 / (1 + ratio), abs=1e-9)
    mean = lambda power, factor: weights @ (nodes**factor * (1 + step * nodes) ** power)  # noqa: E731
    places = np.arange(1, layers + 1)
    found = []
    for sign in (1, -1):
        block = np.zeros((layers, layers))
        for i in places:
            for j in places:
                block[i - 1, j - 1] = mean(2 * layers - i - j, 0) * mean(i + j - 2, 2)
                if apart := abs(i - j):
                    block[i - 1, j - 1] += sign * mean(apart - 1, 1) * mean(2 * layers - 1 - apart, 1)
        found.append(block / mean(2 * layers - 2, 2))
    return found


@pytest.mark.evidence("book-loops-shape")
@pytest.mark.parametrize("layers", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("inverse", [1, 4, 20])
def test_ratios_tend_to_those_of_many_dimensions(layers, inverse):
    """By exact moments in a million dimensions."""
    dim, ratio = 10**6, 1 / inverse
    nodes, weights, step = moments(ratio, layers)
    rate = 2 * weights @ (nodes**2 * (1 + step * nodes) ** (2 * layers - 2))
    blocks = transverse_hessians([step] * layers, dim, inverse * dim)
    for block, limit in zip(blocks, limits(ratio, layers), strict=True):
        assert (block / rate).numpy() == pytest.approx(limit, rel=1e-4, abs=2e-4)
    assert tied_optimum(100, 100 * inverse, layers)[0] == pytest.approx(step, abs=0.02)
    assert tied_rates(100, 100 * inverse, layers)[1] / 100 == pytest.approx(rate, rel=0.1)


def catalan(index):
    return math.comb(2 * index, index) // (index + 1)


@pytest.mark.evidence("book-loops-shape")
def test_for_long_prompts_the_ratio_is_that_of_catalan_numbers_and_above_1_from_five_layers_on():
    known = {2: 0, 3: 0.5, 4: 0.6 * 2**0.5, 5: 1.112, 6: 1.320}
    for layers in range(2, 20):
        block = np.zeros((layers, layers))
        for i in range(1, layers + 1):
            for j in range(1, layers + 1):
                first, second = (
                    (i + j - 2, 2 * layers - i - j) if (i + j) % 2 == 0 else (abs(i - j) - 1, 2 * layers - 1 - abs(i - j))
                )
                block[i - 1, j - 1] = Fraction(catalan(first // 2) * catalan(second // 2), catalan(layers - 1))
        ratio = -np.linalg.eigvalsh(block)[0]
        total = sum(abs(layers - 1 - 2 * q) * catalan(q) * catalan(layers - 1 - q) for q in range(layers))
        bound = (Fraction(2 * total, layers) - catalan(layers)) / catalan(layers - 1)
        signs = (-1.0) ** np.arange(layers)
        assert -signs @ block @ signs / layers == pytest.approx(float(bound), abs=1e-9)
        assert (ratio > 1) == (layers >= 5)
        assert (bound > 1) == (layers >= 6)
        if layers in known:
            assert ratio == pytest.approx(known[layers], abs=5e-4 if layers > 4 else 1e-12)
        if layers < 7:
            rates = [-np.linalg.eigvalsh(block)[0] for block in limits(1e-5, layers)]
            assert rates == pytest.approx([ratio] * 2, abs=1e-3)
