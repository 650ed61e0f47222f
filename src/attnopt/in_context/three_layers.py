"""Three plain layers in two dimensions: the exact loss as a polynomial, and the certificate of a lower bound."""

import itertools
from collections import defaultdict
from fractions import Fraction
from math import lcm, prod

import numpy as np
import sympy as sp
from torch import Tensor

from attnopt.checks import check_count, check_matrix_shape, check_tensors
from attnopt.in_context.steps import optimal_step_sizes

LAYERS, ENTRIES = 3, ((0, 0), (0, 1), (1, 1))  # of a symmetric matrix
# at most one entry of each matrix: the unit vector of each, or 0
MONOMIALS = [sum(parts, ()) for parts in itertools.product([(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)], repeat=LAYERS)]


def three_layer_loss(n_context: int) -> dict[tuple[int, ...], Fraction]:
    """The in-context loss of three layers as a polynomial in the entries of their symmetric, whitened 2 × 2 matrices A_i.

    The loss is E‖(I + GA_0)(I + GA_1)(I + GA_2)‖². The whitened Gram matrix is G = LLᵀ/n, where L is lower triangular
    (Bartlett), and its entries are independent, chi-distributed with n and n - 1 degrees of freedom on the diagonal and
    normal below it.

    Args:
        n_context: n, the number of labeled examples in a prompt.

    Returns:
        A dict from the exponents of (A_0)₁₁, (A_0)₁₂, (A_0)₂₂, (A_1)₁₁, … to the coefficients that are not 0.

    Source: the chapter "Optimal step sizes".
    """
    n_context = check_count("n_context", n_context)
    ring, *symbols = sp.ring("a:9, x, y, z", sp.QQ)
    entries, (x, y, z) = symbols[:9], symbols[9:]
    gram = np.array([[x * x, x * z], [x * z, y * y + z * z]], dtype=object) * ring(sp.Rational(1, n_context))
    product = np.array([[ring(1), ring(0)], [ring(0), ring(1)]], dtype=object)
    for i in range(LAYERS):
        a, b, c = entries[3 * i : 3 * i + 3]
        product = product + product @ gram @ np.array([[a, b], [b, c]], dtype=object)
    found: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    for (*exponents, in_x, in_y, in_z), value in sum((entry**2 for entry in product.flat), ring(0)).terms():
        if in_z % 2 == 0:
            moments = (n_context + 2 * j for j in range(in_x // 2)), (n_context - 1 + 2 * j for j in range(in_y // 2))
            mean = prod(itertools.chain(*moments, range(1, in_z, 2)))  # the mean of z⁴ is 1 · 3
            found[tuple(exponents)] += Fraction(int(value.numerator), int(value.denominator)) * mean
    return {exponents: value for exponents, value in found.items() if value}


def monomial_pairs() -> np.ndarray:
    """A number for each pair of `MONOMIALS`, the same for pairs with the same product, shape (64, 64)."""
    products = [[_product(one, other) for other in MONOMIALS] for one in MONOMIALS]
    numbers = {product: number for number, product in enumerate(dict.fromkeys(itertools.chain(*products)))}
    return np.array([[numbers[product] for product in row] for row in products])


def _product(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def three_layer_certificate(n_context: int, gram: Tensor, share: Fraction) -> Fraction:
    """Prove, in exact arithmetic, that for d = 2 no three layers with symmetric weights have a loss below a bound.

    The bound is ``share`` times the least loss among multiples of the identity. Let z be the vector of `MONOMIALS`. The
    function turns ``gram`` into an exact matrix Q with loss - bound = zᵀQz: for each coefficient of loss - bound, it spreads
    the error that ``gram`` leaves evenly over the pairs of monomials that contribute to it. Gaussian elimination in whole
    numbers then shows that Q is positive definite. So the loss exceeds the bound everywhere, whatever the rounding errors in
    ``gram``.

    Args:
        n_context: n, the number of labeled examples in a prompt.
        gram: an approximation of Q, shape (64, 64).
        share: the bound divided by that least loss, below 1.

    Returns:
        The bound.

    Raises:
        ArithmeticError: if the matrix is not positive definite; nothing is then proved.

    Source: the chapter "Optimal step sizes".
    """
    check_tensors(gram=gram)
    size = len(MONOMIALS)
    check_matrix_shape("gram", gram, (size, size), "for the 64 monomials")
    bound = Fraction(share) * optimal_step_sizes(2, n_context, LAYERS)[1]
    target = three_layer_loss(n_context)
    target[(0,) * 3 * LAYERS] -= bound
    pairs = monomial_pairs()
    entries = [[Fraction(value) for value in row] for row in ((gram + gram.mT) / 2).tolist()]
    places = defaultdict(list)
    for i, j in itertools.product(range(size), repeat=2):
        places[pairs[i, j]].append((i, j))
    for where in places.values():
        i, j = where[0]
        wanted = target.pop(_product(MONOMIALS[i], MONOMIALS[j]), Fraction(0))
        missing = (wanted - sum(entries[i][j] for i, j in where)) / len(where)
        for i, j in where:
            entries[i][j] += missing
    if target:
        raise ArithmeticError("not certified: the loss has a monomial that no pair gives")
    whole = lcm(*(value.denominator for row in entries for value in row))
    rows, before = [[int(value * whole) for value in row] for row in entries], 1
    for k in range(size):  # Bareiss: the pivots are the leading minors
        if (pivot := rows[k][k]) <= 0:
            raise ArithmeticError("not certified: the matrix is not positive definite")
        for i in range(k + 1, size):
            rows[i] = [(pivot * rows[i][j] - rows[i][k] * rows[k][j]) // before for j in range(size)]
        before = pivot
    return bound
