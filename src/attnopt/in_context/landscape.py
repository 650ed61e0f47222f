"""The exact curvature of the loss at the points A_i = a_i Σ⁻¹, in the directions that leave these points."""

from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor

from attnopt.checks import as_numbers, check_cost, check_count
from attnopt.in_context.wishart import wishart_trace_moment

Coefficients = list[Fraction]


def transverse_hessians(steps: Tensor | Sequence[float], dim: int, n_context: int) -> tuple[Tensor, Tensor]:
    """Hessian of the in-context loss of plain layers at A_i = a_i Σ⁻¹, in the directions that leave the points of this form.

    The distribution of the whitened Gram matrix is invariant under rotations. By Schur's lemma, the Hessian over all
    (A_0, …, A_{k-1}) therefore splits (in whitened coordinates) into k × k blocks of three kinds: for multiples of I, for
    symmetric traceless directions, and for antisymmetric directions. A block's entry (i, j) is the second derivative along
    a unit direction E in layers i and j.

    Args:
        steps: step sizes a_i in the order of the layers, shape (k,).
        dim: the dimension d, at least 2 (in one dimension, there is no other direction).
        n_context: n, the number of labeled examples in a prompt.

    Returns:
        The symmetric traceless and the antisymmetric block, float64, shape (k, k) each. At a critical
        point of the form A_i = a_i Σ⁻¹, the loss has a strict local minimum in these directions if both blocks are positive
        definite. The fractions are exact; 10 layers take 3 seconds, 20 a minute.

    Raises:
        ValueError: if a call would take more than 300 s or 4 GiB.

    Source: the chapter "Optimal step sizes".
    """
    steps = as_numbers("steps", steps)
    if steps.ndim != 1:
        raise ValueError(f"steps must have shape (k,), got {tuple(steps.shape)}")
    if check_count("dim", dim) < 2:
        raise ValueError(f"dim must be at least 2, got {dim}")
    check_count("n_context", n_context)
    k = len(steps)
    check_cost("steps", f"{k} of them", 5.5e-5 * k**4.65)
    factors = [[Fraction(1), Fraction(step)] for step in steps.tolist()]
    before = [_product(factors[:i]) for i in range(k)]
    after = [_product(factors[i + 1 :]) for i in range(k)]
    whole = _product(factors)

    def one_trace(p: Coefficients) -> Fraction:
        """E tr p(G)."""
        return sum((c * wishart_trace_moment([i], dim, n_context) / n_context**i for i, c in enumerate(p)), Fraction())

    def two_traces(p: Coefficients, q: Coefficients) -> Fraction:
        """E tr p(G) tr q(G)."""
        terms = (
            a * b * wishart_trace_moment([i, j], dim, n_context) / n_context ** (i + j)
            for i, a in enumerate(p)
            for j, b in enumerate(q)
        )
        return sum(terms, Fraction())

    def mean(p: Coefficients, q: Coefficients, sign: int) -> Fraction:
        """E tr(p(G) E q(G) Eᵀ), averaged over unit symmetric traceless (+1) or antisymmetric (-1) E."""
        both, single = two_traces(p, q), one_trace(_product([p, q]))
        if sign > 0:
            return ((both + single) / 2 - single / dim) / Fraction(dim * (dim + 1) - 2, 2)
        return (both - single) / (dim * (dim - 1))

    def entry(i: int, j: int, sign: int) -> Fraction:
        # the first derivative of Π(I + GA_l) along E in layer i is before_i(G) G E after_i(G)
        value = 2 * mean(_product([after[i], after[j]]), _shift(_product([before[i], before[j]]), 2), sign)
        if i != j:
            first, last = sorted((i, j))
            between = _shift(_product(factors[first + 1 : last]), 1)
            value += 2 * sign * mean(_shift(_product([after[last], whole, before[first]]), 1), between, sign)
        return value

    blocks = [[[float(entry(i, j, sign)) for j in range(k)] for i in range(k)] for sign in (1, -1)]
    return torch.tensor(blocks[0], dtype=torch.float64), torch.tensor(blocks[1], dtype=torch.float64)


def _product(polynomials: list[Coefficients]) -> Coefficients:
    """Product of polynomials given by their coefficients, lowest first."""
    result = [Fraction(1)]
    for polynomial in polynomials:
        new = [Fraction(0)] * (len(result) + len(polynomial) - 1)
        for i, a in enumerate(result):
            for j, b in enumerate(polynomial):
                new[i + j] += a * b
        result = new
    return result


def _shift(polynomial: Coefficients, power: int) -> Coefficients:
    """A polynomial times λ to a power."""
    return [Fraction(0)] * power + polynomial
