"""Exact proof, for a given dimension and number of examples, that two layers do best with multiples of the identity.

In whitened coordinates let A_0 = diag(α) and A_1 = diag(β). Column j of the residual is
e_j + (α_j + β_j)Ge_j + β_j G A_0 Ge_j. Its mean square, ψ(α_j, m_j, β_j) if the other α have the mean m_j and no spread,
only grows with their spread, so that

    f(A_0, A_1) ≥ Σ_j ψ(α_j, m_j, β_j),   with Σ_j (α_j - m_j) = 0 and (α_j + (d-1)m_j)/d = s for all j.

It remains to find a function c with ψ(x, m, β) ≥ f⋆/d + c(s)(x - m) everywhere: summed over j the right-hand side is f⋆.
"""

import itertools

import sympy as sp

from attnopt.checks import check_count
from attnopt.in_context.wishart import wishart_trace_moment

x, m, beta, s = sp.symbols("x m beta s", real=True)


def column_loss(dim: int, n_context: int) -> tuple[sp.Expr, sp.Expr]:
    """Mean square of a column of the residual of two layers, and its value at the optimal scalars.

    Args:
        dim: d, at least 2.
        n_context: n.

    Returns:
        ψ(x, m, β) = E‖e + (x + β)Ge + βG diag(x, m, …, m)Ge‖², e the first unit vector, with exact coefficients, and
        the minimum f⋆/d of ψ(x, x, β).

    Raises:
        TypeError: if an argument is not an integer.
        ValueError: if ``dim`` is smaller than 2 or ``n_context`` than 1.

    Source: the chapter "Layers are steps".
    """
    if check_count("dim", dim) < 2:
        raise ValueError(f"dim must be at least 2, got {dim}")
    check_count("n_context", n_context)

    def trace(*powers: int) -> sp.Rational:
        return sp.Rational(int(wishart_trace_moment(powers, dim, n_context)), n_context ** sum(powers))

    # entries of powers of G at (1, 1), averaged over rotations
    one = [trace(p) / dim for p in range(5)]
    two = {p: (trace(1, p) + 2 * trace(p + 1)) / (dim * (dim + 2)) for p in (1, 2, 3)}
    three = (trace(1, 1, 2) + 2 * trace(2, 2) + 4 * trace(1, 3) + 8 * trace(4)) / (dim * (dim + 2) * (dim + 4))
    # inner products of the vectors e, Ge, G²e and G₁₁Ge
    gram = sp.Matrix(
        [
            [one[0], one[1], one[2], two[1]],
            [one[1], one[2], one[3], two[2]],
            [one[2], one[3], one[4], two[3]],
            [two[1], two[2], two[3], three],
        ]
    )
    coefficients = sp.Matrix([1, x + beta, beta * m, beta * (x - m)])
    loss = sp.expand((coefficients.T * gram * coefficients)[0])
    normal = sp.Matrix([[one[2], one[3]], [one[3], one[4]]])
    right = sp.Matrix([one[1], one[2]])
    return loss, one[0] - (right.T * normal.LUsolve(right))[0]


def two_layer_certificate(dim: int, n_context: int) -> sp.Expr:
    """A function c(s) with ψ(x, m, β) ≥ f⋆/d + c(s)(x - m), s = (x + (d-1)m)/d, checked exactly for all x, m and β.

    c is a line divided by 1 + s², the line chosen such that equality can hold at the two optimal scalars. Minimised over β
    the inequality is one for a polynomial in x and s, of degree 4 in x. Between neighbouring real roots of its discriminant
    and leading coefficient the number of its real roots in x does not change: it is counted, by Sturm sequences, at a
    rational s in each interval.

    Args:
        dim: d, at least 2.
        n_context: n.

    Returns:
        c(s). With it f(A_0, A_1) ≥ f⋆ for all symmetric A_0 and A_1.

    Raises:
        TypeError: if an argument is not an integer.
        ValueError: if ``dim`` is smaller than 2 or ``n_context`` than 1.
        ArithmeticError: if the inequality fails, so that this c proves nothing.

    Source: the chapter "Layers are steps".
    """
    loss, least = column_loss(dim, n_context)
    line = loss.subs(m, (dim * s - x) / (dim - 1))
    quadratic, linear, constant = sp.Poly(line, beta).all_coeffs()
    # at an optimal scalar a the other one is e_1 - a, with e_1 and e_2 their sum and product
    a, e_1, e_2 = sp.symbols("a e_1 e_2")
    scalar = sp.expand(loss.subs(m, x)).subs(beta, e_1 - x)
    reduced = sp.expand(sp.rem(sp.Poly(scalar, x), sp.Poly(x**2 - e_1 * x + e_2, x)).as_expr())
    sums = sp.solve([sp.diff(reduced, e_1), sp.diff(reduced, e_2)], [e_1, e_2], dict=True)[0]
    minimal = sp.Poly(a**2 - sums[e_1] * a + sums[e_2], a, domain="QQ")
    slope = sp.diff(line, x).subs({x: a, s: a, beta: sums[e_1] - a}) * sp.Rational(dim - 1, dim)
    numerator = sp.rem(sp.Poly(sp.expand(slope * (1 + a**2)), a, domain="QQ"), minimal).as_expr().subs(a, s)
    excess = (constant - least) * (1 + s**2) - numerator * (x - (dim * s - x) / (dim - 1))
    form = sp.Poly(sp.expand(4 * excess * quadratic - linear**2 * (1 + s**2)), x, s, domain="QQ")

    in_x = sp.Poly(form.as_expr(), x)
    critical = sp.Poly(sp.discriminant(form.as_expr(), x) * in_x.LC(), s, domain="QQ")
    simple = sp.Poly(sp.prod([factor for factor, _ in sp.factor_list(critical)[1]]), s, domain="QQ")
    roots = [interval for interval, _ in simple.intervals(eps=sp.Rational(1, 10**6))]
    samples = [(left[1] + right[0]) / 2 for left, right in itertools.pairwise(roots)]
    samples += [roots[0][0] - 1, roots[-1][1] + 1] if roots else [sp.Integer(0)]
    for sample in samples:
        quartic = sp.Poly(form.as_expr().subs(s, sample), x, domain="QQ")
        if quartic.count_roots() or quartic.eval(0) <= 0:
            raise ArithmeticError(f"the inequality fails at s = {sample} for dim {dim}, n_context {n_context}")
    return numerator / (1 + s**2)
