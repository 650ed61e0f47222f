"""Two plain layers: the exact loss of diagonal weights, and a certificate that multiples of Σ⁻¹ are the only minimizers."""

import math
from collections.abc import Sequence
from fractions import Fraction

import sympy as sp

from attnopt.checks import check_count
from attnopt.in_context.steps import optimal_step_sizes


def two_layer_coefficients(dim: sp.Expr | int, n_context: sp.Expr | int) -> dict[str, sp.Expr]:
    """Coefficients of the moments of the whitened Gram matrix G that determine the loss of two layers.

    For any symmetric matrix P, E[G²] = second I, E[GPG] = (1 + 1/n) P + (tr P / n) I, E[G²PG] = alpha P + beta tr(P) I,
    and E[GPG²PG] = a P² + b tr(P) P + (c tr(P²) + e tr(P)²) I.

    Args:
        dim: the dimension d, a whole number or a symbol.
        n_context: n, the number of examples, a whole number or a symbol.

    Returns:
        A dict of the coefficients "second", "alpha", "beta", "a", "b", "c", and "e".

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
    """The polynomials U, L, and W in a lower bound of the loss of two layers, f ≥ Σ_i (U + 2 q_i L + q_i² W).

    The layers have diagonal (whitened) matrices A_0 with entries p_i and A_1 with entries q_i. The polynomials depend on
    p = p_i and on the mean m of the p_i. The bound is an equality if all p_i are equal.

    Args:
        dim: the dimension d.
        n_context: n, the number of labeled examples in a prompt.

    Returns:
        U(p), L(p, m), W(p, m), and the symbols (p, m).

    Source: the chapter "Layers are steps".
    """
    check_count("dim", dim)
    check_count("n_context", n_context)
    return _bound(sp.Integer(dim), sp.Integer(n_context))


def _bound(d: sp.Expr, n: sp.Expr) -> tuple[sp.Expr, sp.Expr, sp.Expr, tuple[sp.Symbol, sp.Symbol]]:
    p, m = sp.symbols("p m", real=True)
    k = two_layer_coefficients(d, n)
    upper = 1 + 2 * p + k["second"] * p**2
    linear = 1 + (1 + 1 / n + k["second"]) * p + d * m / n + k["alpha"] * p**2 + k["beta"] * d * m * p
    square = k["second"] + 2 * k["alpha"] * p + 2 * k["beta"] * d * m + k["a"] * p**2 + k["b"] * d * m * p
    return upper, linear, square + (k["c"] * d + k["e"] * d**2) * m**2, (p, m)


def two_layer_certificate(dim: int, n_context: int) -> dict[str, sp.Expr]:
    """Prove, in exact arithmetic, that two layers have no better symmetric weights than two multiples of the identity.

    Let U, L, and W be the polynomials of `two_layer_bound`, in a diagonal entry p of A_0 and the mean m of its d diagonal
    entries, and let f⋆ be the least loss of two multiples of the identity. For every m, there is a slope s(m) such that U -
    L²/W ≥ f⋆/d + s(m) (p - m) for all p, with equality only if p = m is one of the optimal steps a_0 and a_1. In the sum
    over the d entries p, the terms s(m) (p - m) cancel, so f ≥ f⋆. The slope is guessed, then verified: the difference of
    the sides, times a positive factor, is a polynomial N(p, m) of degree 4 in p, and its leading coefficient, discriminant,
    and numbers of real roots show that it is nowhere negative.

    Args:
        dim: the dimension d, at least 2.
        n_context: n, the number of labeled examples in a prompt.

    Returns:
        A dict with "loss" (f⋆), "steps" (the polynomial in m whose roots are a_0 and a_1), "slope" (s(m)), and
        "difference" (N(p, m)).

    Raises:
        ArithmeticError: if the guessed slope fails; nothing is then proved.

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
    factors = sp.sqf_list(_on_line(excess := (upper - least) * square - linear**2))
    _require(factors[0] > 0 and [(f.degree(), k) for f, k in factors[1]] == [(2, 2)], "the steps are not a double pair")
    steps = factors[1][0][0].monic()
    middle, product = -steps.coeff_monomial(m), steps.coeff_monomial(1)
    gap = middle**2 - 4 * product  # (a_0 - a_1)²
    _require(gap > 0, "the steps coincide")
    polynomial, slope = _tangent(upper, linear, square, excess, steps, middle, gap)
    difference = sp.Poly(polynomial.clear_denoms()[1].as_expr(), p)

    _require_nowhere_negative(difference, steps, p, m)
    return {"loss": least * dim, "steps": steps.as_expr(), "slope": slope, "difference": difference.as_expr()}


def two_layer_certificate_for_all(dim: int, root: int = 5) -> dict[str, sp.Expr]:
    """Prove, in exact arithmetic and for every n, that two layers have no better symmetric weights than multiples of I.

    For n up to root², `two_layer_certificate` proves it. For larger n, the polynomial N(p, m) of that proof has n as a
    symbol. The signs of coefficients, in variables that replace m and n, show that the leading coefficient of N in p never
    vanishes, and that the discriminant vanishes only at the optimal steps. So for all other m, N has as many real roots p as
    for n = root²: none.

    Args:
        dim: the dimension d, at least 2.
        root: n is a symbol from root² on; if the proof fails, a larger root may succeed.

    Returns:
        A dict with "loss" (f⋆) and "steps" (the polynomial in m whose roots are a_0 and a_1), both with the symbol n.

    Raises:
        ArithmeticError: if the proof fails for some n.

    Source: the chapter "Layers are steps".
    """
    root = check_count("root", root)
    *_, last = (two_layer_certificate(dim, n_context) for n_context in range(1, root**2 + 1))
    n = sp.Symbol("n", positive=True)
    *bound, (p, m) = _bound(sp.Integer(dim), n)
    square = bound[2]
    bottom = sp.solve([sp.diff(square, p), sp.diff(square, m)], (p, m), dict=True)[0]
    hessian = sp.hessian(square, (p, m))

    k = two_layer_coefficients(dim, n)
    moments = [sp.Integer(1), k["second"], k["alpha"] + dim * k["beta"], k["a"] + dim * (k["b"] + k["c"]) + dim**2 * k["e"]]
    # the loss of the steps is that of 1 + (a_0 + a_1) g + a_0 a_1 g², a least-squares problem
    gram = sp.Matrix([[moments[1], moments[2]], [moments[2], moments[3]]])
    total, product = (sp.cancel(entry) for entry in -gram.inv() * sp.Matrix(moments[:2]))  # a_0 + a_1 and a_0 a_1
    least = sp.cancel(1 + total * moments[0] + product * moments[1])
    gap = sp.cancel(total**2 - 4 * product)
    _require(sp.cancel(dim * least - last["loss"]).subs(n, root**2) == 0, "the loss is another one")

    field = sp.QQ.frac_field(n)
    shift = {p: p + total / 2, m: m + total / 2}
    upper, linear, square = (sp.Poly(part.subs(shift, simultaneous=True), p, m, domain=field) for part in bound)
    steps = sp.Poly(m**2 - gap / 4, m, domain=field)
    excess = (upper - least) * square - linear**2
    factor, rest = sp.div(_on_line(excess), steps**2)
    _require(rest.is_zero and factor.degree() == 0, "the steps are not a double pair")
    signs = {"the steps coincide": gap, "W is not convex": hessian[0, 0], "the factor": factor.as_expr()}
    signs |= {"W is not convex ": hessian.det(), "W is not positive": bound[2].subs(bottom)}
    for complaint, value in signs.items():
        over, under = (sp.Poly(part, n).compose(sp.Poly(n + root**2, n)) for part in sp.fraction(sp.cancel(value)))
        _require(all(min(part.all_coeffs()) >= 0 < part.eval(0) for part in (over, under)), complaint.strip())

    factor, quartic = _tangent(upper, linear, square, excess, steps, total, gap)[0].clear_denoms(convert=True)
    ring, *_ = sp.ring([m, n], sp.ZZ)
    whole = math.lcm(*(int(number.q) for value in quartic.coeffs() for number in sp.Poly(value, n).coeffs()))
    coefficients = [ring(0)] * 5
    for (i, j), value in quartic.terms():
        coefficients[i] += ring.from_expr(sp.expand(whole * value * m**j))
    common = coefficients[0]
    for value in coefficients:
        common = common.gcd(value)
    *_, leading = coefficients = [value.quo(common) for value in coefficients]
    discriminant = _quartic_discriminant(*coefficients)
    vanishing = ring.from_expr(sp.fraction(sp.cancel(steps.as_expr()))[0].expand())
    while not (division := discriminant.div(vanishing))[1]:
        discriminant = division[0]
    denominator = ring.from_expr(sp.fraction(sp.together(sp.expand(factor)))[0])
    parts = {
        "denominator": denominator,
        "common factor": common,
        "leading coefficient": leading,
        "discriminant": discriminant,
    }
    for name, polynomial in parts.items():
        _require(_positive_from(polynomial, root) or _positive_from(-polynomial, root), f"the {name} vanishes")
    return {"loss": sp.factor(dim * least), "steps": sp.cancel(steps.as_expr().subs(m, m - total / 2))}


def _require_nowhere_negative(quartic: sp.Poly, steps: sp.Poly, p: sp.Symbol, m: sp.Symbol) -> None:
    """Reject a quartic in p that is negative anywhere, or 0 for some m that is not a root of ``steps``."""
    leading = sp.Poly(quartic.coeff_monomial(p**4), m)
    _require(leading.eval(0) > 0 and not leading.intervals(), "the leading coefficient vanishes")
    discriminant = _quartic_discriminant(*(sp.Poly(quartic.coeff_monomial(p**k), m, domain="QQ") for k in range(5)))
    while (division := sp.div(discriminant, steps))[1].is_zero:
        discriminant = division[0]
    _require(not discriminant.clear_denoms()[1].primitive()[1].intervals(), "the discriminant vanishes elsewhere")
    middle = -steps.coeff_monomial(m)
    for place in (middle - 1, middle / 2, sp.Integer(1)):  # left of both steps, between them, right of both
        _require(sp.Poly(quartic.as_expr().subs(m, place), p).count_roots() == 0, "the difference changes sign")


def _on_line(polynomial: sp.Poly) -> sp.Poly:
    """A polynomial in p and m, restricted to p = m (multiples of I)."""
    p, m = polynomial.gens
    return sp.Poly(polynomial.as_expr().subs(p, m), m, domain=polynomial.domain.get_field())


def _tangent(
    upper: sp.Poly, linear: sp.Poly, square: sp.Poly, excess: sp.Poly, steps: sp.Poly, total: sp.Expr, gap: sp.Expr
) -> tuple[sp.Poly, sp.Expr]:
    """The difference N(p, m) for the guessed slope s(m), up to denominators, and this slope.

    p and m may be measured from any point; ``total`` is a_0 + a_1 from 0, and ``gap`` is (a_0 - a_1)².
    """
    p, m = upper.gens
    # the slope is forced at both steps: there it is the derivative of U - L²/W in p
    numerator = upper.diff(p) * square**2 - 2 * linear * linear.diff(p) * square + linear**2 * square.diff(p)
    forced = (_on_line(numerator) * sp.invert(_on_line(square**2), steps)).rem(steps)
    scaled = steps.as_expr() / gap
    below = 1 + scaled + 10 * scaled**2  # positive: its discriminant is 1 - 40 < 0
    above = forced.as_expr() - 2 * forced.coeff_monomial(m) * total * scaled
    below_, above_ = (sp.Poly(part, p, m, domain=upper.domain.get_field()) for part in (below, above * (p - m)))
    return below_ * excess - square * above_, above / below


def _positive_from(polynomial: sp.polys.rings.PolyElement, root: int) -> bool:
    """Whether the signs of coefficients show that a polynomial in m and n is positive for all m = z/ν, n = ν², ν ≥ root."""
    degree = max(i for i, _ in polynomial)
    rows: dict[int, list[int]] = {}  # the power of t = ν - root, the coefficients of powers of z
    for (i, k), value in polynomial.terms():
        high = 2 * k - i + degree  # ν^degree times the polynomial
        for j in range(high + 1):
            rows.setdefault(j, [0] * (degree + 1))[i] += int(value) * math.comb(high, j) * root ** (high - j)
    mirrored = {j: [(-1) ** i * value for i, value in enumerate(row)] for j, row in rows.items()}
    return all(_positive_on(half, Fraction(0), None, 12) for half in (rows, mirrored))


def _positive_on(rows: dict[int, list[int]], low: Fraction, high: Fraction | None, depth: int) -> bool:
    """Whether Σ_j t^j row_j(z) > 0 for t ≥ 0 and low ≤ z ≤ high, from signs on intervals halved up to ``depth`` times."""
    found = {}
    for j, row in rows.items():
        scale = low.denominator if high is None else math.lcm(low.denominator, high.denominator)
        row = _shifted([value * scale ** (len(row) - 1 - i) for i, value in enumerate(row)], int(low * scale))
        if high is not None:  # z = low + (high - low)/(1 + s)
            width = int((high - low) * scale)
            row = _shifted([value * width**i for i, value in enumerate(row)][::-1], 1)
        found[j] = row
    if min(map(min, found.values())) >= 0 and found[0][0] > 0 and found[0][-1] > 0:
        return True
    if not depth:
        return False
    middle = max(2 * low, Fraction(1)) if high is None else (low + high) / 2
    return _positive_on(rows, low, middle, depth - 1) and _positive_on(rows, middle, high, depth - 1)


def _shifted(row: Sequence[int], by: int) -> list[int]:
    """The coefficients of q(s + by), lowest first."""
    row = list(row)
    for start in range(len(row) - 1):
        for i in range(len(row) - 2, start - 1, -1):
            row[i] += by * row[i + 1]
    return row


def _quartic_discriminant(e: sp.Poly, d: sp.Poly, c: sp.Poly, b: sp.Poly, a: sp.Poly) -> sp.Poly:
    """The discriminant of e + dp + cp² + bp³ + ap⁴ in p, up to the factor 27."""
    even = c**2 - 3 * b * d + 12 * a * e
    odd = 2 * c**3 - 9 * b * c * d + 27 * b**2 * e + 27 * a * d**2 - 72 * a * c * e
    return 4 * even**3 - odd**2


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ArithmeticError(f"not certified: {otherwise}")
