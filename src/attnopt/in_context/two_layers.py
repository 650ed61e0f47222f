"""Two plain layers: the exact loss of diagonal weights, and a certificate that multiples of Σ⁻¹ are the only minimisers."""

import sympy as sp

from attnopt.checks import check_count
from attnopt.in_context.steps import optimal_step_sizes


def two_layer_coefficients(dim: sp.Expr | int, n_context: sp.Expr | int) -> dict[str, sp.Expr]:
    """The moments of G that the loss of two layers needs, for symmetric P and traceless parts left open.

    E[G²] = second I, E[GPG] = (1 + 1/n) P + (tr P / n) I, E[G²PG] = alpha P + beta tr(P) I and
    E[GPG²PG] = a P² + b tr(P) P + (c tr(P²) + e tr(P)²) I.

    Args:
        dim: d, a whole number or a symbol.
        n_context: n, a whole number or a symbol.

    Returns:
        The coefficients "second", "alpha", "beta", "a", "b", "c" and "e".

    Source: the chapter "Layers are steps", which derives them by counting pairings.
    """
    d, n = sp.sympify(dim), sp.sympify(n_context)
    return {
        "second": (n + d + 1) / n,
        "alpha": (n**2 + 3 * n + 4 + d * (n + 1)) / n**2,
        "beta": (2 * n + 2 + d) / n**2,
        "a": (n**3 + 6 * n**2 + 21 * n + 20 + d * (n**2 + 3 * n + 4)) / n**3,
        "b": 2 * (2 * n**2 + 5 * n + 5 + d * (n + 1)) / n**3,
        "c": (n**2 + 4 * n + 7 + d * (n + 1)) / n**3,
        "e": (3 * n + 3 + d) / n**3,
    }


def two_layer_bound(dim: int, n_context: int) -> tuple[sp.Expr, sp.Expr, sp.Expr, tuple[sp.Symbol, sp.Symbol]]:
    """U, L and W of the bound f ≥ Σ_i (U + 2 q_i L + q_i² W) at the entries p_i, q_i of diagonal A_0, A_1.

    All are polynomials in p = p_i and in the mean m of the p_i. The bound is an equality if all p_i are equal.

    Args:
        dim: the dimension d.
        n_context: n, the labelled examples of a prompt.

    Returns:
        U(p), L(p, m), W(p, m) and the symbols (p, m).

    Source: the chapter "Layers are steps".
    """
    check_count("dim", dim)
    check_count("n_context", n_context)
    p, m = sp.symbols("p m", real=True)
    k, d, n = two_layer_coefficients(dim, n_context), sp.Integer(dim), sp.Integer(n_context)
    upper = 1 + 2 * p + k["second"] * p**2
    linear = 1 + (1 + 1 / n + k["second"]) * p + d * m / n + k["alpha"] * p**2 + k["beta"] * d * m * p
    square = k["second"] + 2 * k["alpha"] * p + 2 * k["beta"] * d * m + k["a"] * p**2 + k["b"] * d * m * p
    return upper, linear, square + (k["c"] * d + k["e"] * d**2) * m**2, (p, m)


def two_layer_certificate(dim: int, n_context: int) -> dict[str, sp.Expr]:
    """Prove, in exact arithmetic, that two layers have no better symmetric weights than two multiples of the identity.

    For every m there is a slope s(m) with U - L²/W ≥ f⋆/d + s(m) (p - m) for all p, with equality only at p = m = a_0 or
    a_1, the optimal steps; summed over the entries the slope drops out, so f ≥ f⋆. The slope is guessed; that it works
    is proved: the difference times a positive factor is a polynomial N(p, m) of degree 4 in p, its leading coefficient
    has no real root, its discriminant in p has none but a_0 and a_1, and between them N has no real root for one m each.

    Args:
        dim: d, at least 2.
        n_context: n, the labelled examples of a prompt.

    Returns:
        "loss" (f⋆), "steps" (the polynomial in m whose roots are a_0 and a_1), "slope" s(m) and "difference" N(p, m).

    Raises:
        ArithmeticError: if the guessed slope fails, so that nothing is proved.

    Source: the chapter "Layers are steps".
    """
    if check_count("dim", dim) < 2:
        raise ValueError(f"dim must be at least 2, got {dim}")
    upper, linear, square, (p, m) = two_layer_bound(dim, n_context)
    _require(sp.hessian(square, (p, m)).is_positive_definite, "W is not convex")
    bottom = sp.solve([sp.diff(square, p), sp.diff(square, m)], (p, m), dict=True)[0]
    _require(square.subs(bottom) > 0, "W is not positive")

    fraction = optimal_step_sizes(dim, n_context, 2)[1]
    least = sp.Rational(fraction.numerator, fraction.denominator) / dim
    upper, linear, square = (sp.Poly(part, p, m) for part in (upper, linear, square))  # multiplied faster than expressions
    excess = (upper - least) * square - linear**2

    def on_line(polynomial: sp.Poly) -> sp.Poly:
        """Where p = m, for multiples of I."""
        return sp.Poly(polynomial.as_expr().subs(p, m), m)

    factors = sp.sqf_list(on_line(excess))
    _require(factors[0] > 0 and [(f.degree(), k) for f, k in factors[1]] == [(2, 2)], "the steps are not a double pair")
    steps = factors[1][0][0].monic()
    middle, product = -steps.coeff_monomial(m), steps.coeff_monomial(1)
    gap = middle**2 - 4 * product  # (a_0 - a_1)²
    _require(gap > 0, "the steps coincide")

    # the slope is forced at both steps: there it is the derivative of U - L²/W in p
    numerator = upper.diff(p) * square**2 - 2 * linear * linear.diff(p) * square + linear**2 * square.diff(p)
    forced = (on_line(numerator) * sp.invert(on_line(square**2), steps)).rem(steps)
    scaled = steps.as_expr() / gap
    below = 1 + scaled + 10 * scaled**2  # positive: its discriminant is 1 - 40 < 0
    above = forced.as_expr() - 2 * forced.coeff_monomial(m) * middle * scaled
    polynomial = sp.Poly(below, p, m) * excess - square * sp.Poly(above * (p - m), p, m)
    difference = sp.Poly(polynomial.clear_denoms()[1].as_expr(), p)

    _require_nowhere_negative(difference, steps, p, m)
    return {"loss": least * dim, "steps": steps.as_expr(), "slope": above / below, "difference": difference.as_expr()}


def _require_nowhere_negative(quartic: sp.Poly, steps: sp.Poly, p: sp.Symbol, m: sp.Symbol) -> None:
    """Refuse a quartic in p that is negative for some m; for m other than the roots of ``steps`` it may not even be 0."""
    leading = sp.Poly(quartic.coeff_monomial(p**4), m)
    _require(leading.eval(0) > 0 and not leading.intervals(), "the leading coefficient vanishes")
    discriminant = _quartic_discriminant(quartic, p, m)
    while (division := sp.div(discriminant, steps))[1].is_zero:
        discriminant = division[0]
    _require(not discriminant.clear_denoms()[1].primitive()[1].intervals(), "the discriminant vanishes elsewhere")
    middle = -steps.coeff_monomial(m)
    for place in (middle - 1, middle / 2, sp.Integer(1)):  # left of both steps, between them, right of both
        _require(sp.Poly(quartic.as_expr().subs(m, place), p).count_roots() == 0, "the difference changes sign")


def _quartic_discriminant(quartic: sp.Poly, p: sp.Symbol, m: sp.Symbol) -> sp.Poly:
    """The discriminant in p, up to the factor 27."""
    e, d, c, b, a = (sp.Poly(quartic.coeff_monomial(p**power), m, domain="QQ") for power in range(5))
    even = c**2 - 3 * b * d + 12 * a * e
    odd = 2 * c**3 - 9 * b * c * d + 27 * b**2 * e + 27 * a * d**2 - 72 * a * c * e
    return 4 * even**3 - odd**2


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ArithmeticError(f"not certified: {otherwise}")
