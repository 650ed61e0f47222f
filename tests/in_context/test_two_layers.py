import itertools
from fractions import Fraction

import pytest
import sympy as sp
import torch
from helpers import normal

from attnopt.in_context import gram_quadrature, optimal_step_sizes, prompt_losses
from attnopt.in_context import two_layers as module
from attnopt.in_context.two_layers import (
    two_layer_bound,
    two_layer_certificate,
    two_layer_certificate_for_all,
    two_layer_coefficients,
)

SIZES = [(2, 1), (2, 2), (3, 2), (3, 6)]


def rule(d, n, degree):
    """Exact quadrature over G, as tensors."""
    return tuple(torch.from_numpy(part.copy()) for part in gram_quadrature(d, n, degree))


def symmetric(generator, *shape):
    """Random symmetric matrices."""
    A = normal(generator, *shape)
    return A + A.mT


@pytest.mark.parametrize(("d", "n"), SIZES)
def test_coefficients_are_the_moments_of_exact_quadrature(d, n, generator):
    G, mass = rule(d, n, 4)
    P, eye = symmetric(generator, d, d), torch.eye(d, dtype=torch.float64)
    c = {key: float(value) for key, value in two_layer_coefficients(d, n).items()}

    def mean(matrices):
        return torch.einsum("q,qij->ij", mass, matrices)

    trace = P.trace()
    torch.testing.assert_close(mean(G @ G), c["second"] * eye)
    torch.testing.assert_close(mean(G @ G @ P @ G), c["alpha"] * P + c["beta"] * trace * eye)
    expected = c["a"] * P @ P + c["b"] * trace * P + (c["c"] * (P @ P).trace() + c["e"] * trace**2) * eye
    torch.testing.assert_close(mean(G @ P @ G @ G @ P @ G), expected)


def bound(d, n):
    """U, L and W as numbers."""
    *parts, symbols = two_layer_bound(d, n)
    return [sp.lambdify(symbols, part) for part in parts]


@pytest.mark.evidence("ahn-theorem-3")
@pytest.mark.parametrize(("d", "n"), list(itertools.product(range(2, 7), range(1, 9))))
def test_certificate_proves_that_equal_steps_are_best(d, n):
    found = two_layer_certificate(d, n)
    steps, least = optimal_step_sizes(d, n, 2)
    assert found["loss"] == sp.Rational(least.numerator, least.denominator)
    roots = sorted((float(root) for root in sp.Poly(found["steps"]).nroots()), reverse=True)
    assert roots == pytest.approx(steps.tolist(), rel=1e-9)
    # what was proved, in numbers: the tangent inequality on a grid of p and m
    U, L, W = bound(d, n)
    slope = sp.lambdify(sp.Symbol("m", real=True), found["slope"])
    p, m = torch.meshgrid(*[torch.linspace(-4, 4, 161, dtype=torch.float64).sinh() / 10 for _ in range(2)], indexing="ij")
    gap = U(p, m) - L(p, m) ** 2 / W(p, m) - float(least) / d - slope(m) * (p - m)
    assert gap.min() > -1e-12
    for step in steps.tolist():
        assert abs(U(step, step) - L(step, step) ** 2 / W(step, step) - float(least) / d) < 1e-10


@pytest.mark.evidence("ahn-theorem-3")
def test_one_certificate_for_every_number_of_examples():
    d = 10  # the chapter takes 2
    found, n = two_layer_certificate_for_all(d), sp.Symbol("n", positive=True)
    for size in (1, 13, 1000):
        steps, least = optimal_step_sizes(d, size, 2)
        assert found["loss"].subs(n, size) == sp.Rational(least.numerator, least.denominator)
        roots = sorted((float(root) for root in sp.Poly(found["steps"].subs(n, size)).nroots()), reverse=True)
        assert roots == pytest.approx(steps.tolist(), rel=1e-9)


def test_certificate_for_all_rejects_what_is_false_for_many_examples_alone(monkeypatch):
    with pytest.raises(ArithmeticError, match="the discriminant vanishes"):
        two_layer_certificate_for_all(2, 1)  # the signs suffice only later
    coefficients, certified = two_layer_coefficients, two_layer_certificate(2, 9)
    monkeypatch.setattr(module, "two_layer_certificate", lambda *sizes: certified)

    def wrong(d, n):  # right at n = 9
        true = coefficients(d, n)
        return true | {"a": true["a"] * (1 - sp.Rational(3, 10) * (n - 9) / n)}

    monkeypatch.setattr(module, "two_layer_coefficients", wrong)
    with pytest.raises(ArithmeticError, match="not certified"):
        two_layer_certificate_for_all(2, 3)


@pytest.mark.parametrize(
    ("text", "positive"),
    [
        ("1 + n*m**2", True),
        ("n - 9 + m**2", False),  # vanishes at n = 9, m = 0
        ("n - 8 + m**2", True),
        ("20 + m*n", False),  # negative where z < -20/ν
        ("20 - 8*m + n*m**2", True),
        ("1 - 2*n*m**2 + n**2*m**4", False),  # (z² - 1)²
        ("1001/1000 - 2*n*m**2 + n**2*m**4", True),
        ("10 - n", False),
    ],
)
def test_signs_of_coefficients_decide_on_the_whole_line(text, positive):
    ring = sp.ring("m, n", sp.ZZ)[0]
    expression = 1000 * sp.sympify(text.replace("1001/1000", "Rational(1001, 1000)"))
    assert module._positive_from(ring.from_expr(expression.expand()), 3) == positive


def test_certificate_rejects_what_is_false(monkeypatch):
    true = optimal_step_sizes(3, 4, 2)

    def too_small(*sizes):
        return true[0], true[1] * 1001 / 1000

    monkeypatch.setattr(module, "optimal_step_sizes", too_small)
    with pytest.raises(ArithmeticError, match="not certified"):
        two_layer_certificate(3, 4)
    monkeypatch.undo()
    coefficients = two_layer_coefficients

    def wrong(d, n):  # c lowered until a spread of the steps pays
        return coefficients(d, n) | {"a": coefficients(d, n)["a"] * sp.Rational(7, 10)}

    monkeypatch.setattr(module, "two_layer_coefficients", wrong)
    with pytest.raises(ArithmeticError, match="not certified"):
        two_layer_certificate(3, 4)


@pytest.mark.parametrize(
    ("upper", "linear", "square", "complaint"),
    [
        ("1", "0", "1 + p**2 - m**2", "W is not convex"),
        ("1", "0", "p**2 + m**2", "W is not positive"),
        ("p", "0", "1 + p**2 + m**2", "not a double pair"),
        ("1/2 + 2 + 2*p**2", "1 + p**2", "1 + (p**2 + m**2)/2", "the steps coincide"),  # (1 + m²)² on the line p = m
    ],
)
def test_certificate_refuses_bounds_of_another_kind(upper, linear, square, complaint, monkeypatch):
    p, m = sp.symbols("p m", real=True)
    bound = [sp.sympify(text, {"p": p, "m": m}, rational=True) for text in (upper, linear, square)]
    monkeypatch.setattr(module, "two_layer_bound", lambda *sizes: (*bound, (p, m)))
    monkeypatch.setattr(module, "optimal_step_sizes", lambda *sizes: (None, Fraction(1)))
    with pytest.raises(ArithmeticError, match=complaint):
        two_layer_certificate(2, 4)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("(p - m)**4 + s**2", None),
        ("(p - m)**4 + s", "changes sign"),  # negative between the steps alone
        ("(p - m)**4 + s**2 * (10 - m)", "discriminant"),  # negative far to the right alone
        ("(p - m)**4 + s**2 * (10 + m)", "discriminant"),
        ("(5 - m) * (p - m)**4 + s**2", "leading"),
    ],
)
def test_a_quartic_is_refused_wherever_it_is_negative(text, complaint):
    p, m = sp.symbols("p m", real=True)
    steps = sp.Poly((m + 1) * (m + sp.Rational(1, 4)), m)
    quartic = sp.Poly(sp.sympify(text, {"p": p, "m": m, "s": steps.as_expr()}), p)
    if complaint is None:
        module._require_nowhere_negative(quartic, steps, p, m)
    else:
        with pytest.raises(ArithmeticError, match=complaint):
            module._require_nowhere_negative(quartic, steps, p, m)


@pytest.mark.evidence("ahn-theorem-3")
@pytest.mark.parametrize(("d", "n", "k"), [(2, 1, 2), (2, 1, 3), (2, 4, 3), (3, 2, 2)])
def test_loss_bounds_the_weights(d, n, k, generator):
    G, mass = rule(d, n, 2 * k)
    smallest = torch.inf
    for _ in range(30):
        A = symmetric(generator, k, d, d)
        A = A / A.square().sum().sqrt()
        for t in (10.0, 100.0, 1000.0):
            smallest = min(smallest, (mass @ prompt_losses(G, t * A) / t**2).item())
    assert smallest > 1e-3
    cancelling = symmetric(generator, d, d)  # A, -A and 0: the first degree cancels, the second cannot
    A = torch.stack([cancelling, -cancelling, *[0 * cancelling] * (k - 2)])
    losses = [mass @ prompt_losses(G, t * A) for t in (1, 10, 100)]
    assert losses[2] > 50 * losses[1] > 500
