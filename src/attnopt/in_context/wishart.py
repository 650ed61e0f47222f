"""Exact moments of Wishart matrices, and the Gauss quadrature of their mean spectrum that follows from the moments.

S = XXᵀ, where X is a d × n matrix of independent standard normal numbers; G = S / n is the whitened Gram matrix of n
examples.
"""

import functools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import scipy.linalg
import scipy.special

from attnopt.checks import check_cost, check_count


def wishart_trace_moment(partition: Sequence[int], dim: int, dof: int) -> Fraction:
    """The exact expectation of a product of traces of powers, E[Π_j tr S^{r_j}].

    S = XXᵀ, where X is a d × n matrix of independent standard normal numbers. Integration by parts lowers the degree by
    one: with p = Π tr S^{r_j} and tr S⁰ = d,

        E[tr S^{m+1} p] = (n+m) E[tr S^m p] + Σ_{l<m} E[tr S^l tr S^{m-l} p] + Σ_j 2r_j E[tr S^{m+r_j} p / tr S^{r_j}].

    Args:
        partition: the powers r_j, non-negative whole numbers in any order.
        dim: the dimension d.
        dof: n, the number of columns of X.

    Returns:
        The moment, a whole number. Time and memory grow like the number of partitions of the degree, the sum of the powers;
        degree 40 takes 2 seconds.

    Raises:
        ValueError: if a call would take more than 300 s or 4 GiB.

    Source: the chapter "Optimal step sizes".
    """
    if not isinstance(partition, Sequence) or isinstance(partition, str):
        raise TypeError(f"partition must be a sequence of integers, got {partition!r}")
    powers = sorted(check_count("partition", power, 0) for power in partition)
    degree = sum(powers)
    partitions = math.exp(min(math.pi * math.sqrt(2 * degree / 3), 700)) / (4 * degree * math.sqrt(3) + 1)  # about so many
    check_cost("partition", f"degree {degree}", 5e-5 * partitions, 1.2e-6 * partitions)
    return Fraction(_moment(tuple(powers), check_count("dim", dim), check_count("dof", dof)))


@functools.cache
def _moment(powers: tuple[int, ...], dim: int, dof: int) -> int:
    if not powers:
        return 1
    if powers[0] == 0:
        return dim * _moment(powers[1:], dim, dof)
    *rest, last = powers
    m = last - 1

    def expectation(parts: list[int]) -> int:
        return _moment(tuple(sorted(parts)), dim, dof)

    total = (dof + m) * expectation([*rest, m])
    total += sum(expectation([*rest, power, m - power]) for power in range(m))
    return total + sum(2 * power * expectation([*rest[:j], *rest[j + 1 :], m + power]) for j, power in enumerate(rest))


def spectral_moments(dim: int, dof: int, count: int) -> tuple[int, ...]:
    """The exact moments E[tr S^m] of a Wishart matrix S, for m = 0 … count - 1, by counting walks.

    S = XXᵀ, where X is a d × n matrix of independent standard normal numbers. Its nonzero eigenvalues are distributed like
    those of BBᵀ, where B is bidiagonal, and its 2 min(d, n) - 1 entries are independent and chi-distributed. A closed walk
    on the path formed by B's entries crosses each entry an even number of times, so products of matrices give the sum over
    all walks. Unlike `wishart_trace_moment`, this reaches degrees in the hundreds.

    Args:
        dim: the dimension d.
        dof: n, the number of columns of X.
        count: number of moments.

    Returns:
        Whole numbers, the first of them d. A hundred take half a second if min(d, n) is 4, and 6 seconds if it is 100; for
        large counts, the time is proportional to min(d, n) and to the fourth power of the count.

    Raises:
        ValueError: if a call would take more than 300 s or 4 GiB.

    Source: the bidiagonal model is Dumitriu and Edelman (2002), Matrix models for beta ensembles, Theorem 3.1.
    """
    dim, dof, count = check_count("dim", dim), check_count("dof", dof), check_count("count", count)
    gib = 2 * min(dim, dof) * (80 + 36 * count) / 2**30
    check_cost("count", f"{count} with dim {dim} and dof {dof}", _seconds_of_moments(dim, dof, count), gib)
    return _spectral_moments(dim, dof, count)


def _seconds_of_moments(dim: int, dof: int, count: int) -> float:
    """The approximate time that exact moments take, as measured."""
    return min(dim, dof) * (8e-6 * count + 7e-10 * float(count) ** 4)


@functools.cache
def _spectral_moments(dim: int, dof: int, count: int) -> tuple[int, ...]:
    small, large = sorted((dim, dof))  # XXᵀ and XᵀX have the same eigenvalues, except zeros
    # degrees of freedom of the squared entries along the path row 1, column 1, row 2, column 2, …
    freedoms = [freedom for i in range(small) for freedom in (large - i, small - 1 - i)][:-1]
    crossings = [[math.prod(range(f, f + 2 * k, 2)) for k in range(count)] for f in freedoms]

    binomials = scipy.linalg.pascal(count, exact=True).astype(object)  # (i + j choose i)
    lengths, totals = np.arange(count).astype(object), np.zeros(count, dtype=object)
    walks = nowhere = np.zeros((count, count), dtype=object)
    nowhere[0, 0] = 1
    for crossed in crossings:
        # walks from this edge's far end back to it, by how often they cross it to and fro, k, and by half their length, m
        before, walks = walks, nowhere.copy()
        for k in range(1, count):
            # between crossings of this edge, the walk makes excursions over the previous one, j of them in all
            excursions = binomials[k - 1, : count - k] @ before[: count - k, : count - k]
            walks[k, k:] = crossed[k] * excursions
            # such a closed walk visits that end k times and rows m times; the trace's walks begin in rows
            totals[k:] += walks[k, k:] * lengths[k:] // k
    totals[0] = dim
    return tuple(totals)


def wishart_recurrence(dim: int, n_context: int, degree: int) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]]:
    """Exact recurrence coefficients of the monic orthogonal polynomials π_j of the mean spectrum, p ↦ E tr p(G).

    G is the whitened Gram matrix of n examples. The recurrence is π_{j+1}(λ) = (λ - α_j) π_j(λ) - β_j π_{j-1}(λ), and
    β_0 = d is the total mass.

    Args:
        dim: the dimension d.
        n_context: n, the number of examples.
        degree: number of coefficients of each kind.

    Returns:
        α_0 … α_{degree-1} and β_0 … β_{degree-1}. A hundred take about 10 seconds for small d and n; the time grows like
        the fifth power of the degree, plus the time for `spectral_moments`.

    Raises:
        ValueError: if a call would take more than 300 s or 4 GiB.

    Source: the algorithm is Chebyshev's, as in Gautschi (2004), Orthogonal Polynomials, section 2.1.7.
    """
    dim, n_context, degree = check_count("dim", dim), check_count("n_context", n_context), check_count("degree", degree)
    check_degree("degree", degree, dim, n_context, degree)
    return _recurrence(dim, n_context, degree)


def check_degree(name: str, value: int, dim: int, n_context: int, degree: int) -> None:
    """Require that the recurrence up to the degree that an argument implies takes at most minutes."""
    seconds = 2.5e-10 * float(degree) ** 5 * math.log2(n_context + 1) + _seconds_of_moments(dim, n_context, 2 * degree)
    check_cost(name, f"{value} with dimension {dim} and {n_context} examples", seconds)


@functools.cache
def _recurrence(dim: int, n_context: int, degree: int) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]]:
    moments = [Fraction(m, n_context**j) for j, m in enumerate(spectral_moments(dim, n_context, 2 * degree))]
    alpha, beta = [moments[1] / moments[0]], [moments[0]]
    before, now = [Fraction(0)] * (2 * degree), moments
    for k in range(1, degree):
        after = [Fraction(0)] * (2 * degree)
        for m in range(k, 2 * degree - k):
            after[m] = now[m + 1] - alpha[-1] * now[m] - beta[-1] * before[m]
        alpha.append(after[k + 1] / after[k] - now[k] / now[k - 1])
        beta.append(after[k] / now[k - 1])
        before, now = now, after
    return tuple(alpha), tuple(beta)


def wishart_quadrature(dim: int, n_context: int, n_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes x_q and weights w_q with E tr p(G) = Σ_q w_q p(x_q) for every polynomial p of degree below 2 ``n_nodes``.

    G is the whitened Gram matrix of n examples.

    Args:
        dim: the dimension d.
        n_context: n, the number of examples.
        n_nodes: number of nodes.

    Returns:
        Nodes in increasing order and positive weights, which sum to d; both read-only.

    Raises:
        ValueError: if a call would take more than 300 s or 4 GiB.

    Source: Golub and Welsch (1969), Calculation of Gauss quadrature rules.
    """
    return _quadrature(check_count("dim", dim), check_count("n_context", n_context), check_count("n_nodes", n_nodes))


@functools.cache
def _quadrature(dim: int, n_context: int, n_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    alpha, beta = wishart_recurrence(dim, n_context, n_nodes)
    diagonal, beside = np.array([float(a) for a in alpha]), np.sqrt([float(b) for b in beta])
    nodes = scipy.linalg.eigvalsh_tridiagonal(diagonal, beside[1:])
    # 1 / Σ_j p_j(x)², because the eigenvectors' first entries would lose the tiny weights of the far nodes to rounding
    before, now = np.zeros(n_nodes), np.full(n_nodes, 1 / beside[0])
    inverse = now**2
    for j in range(n_nodes - 1):
        before, now = now, ((nodes - diagonal[j]) * now - (beside[j] * before if j else 0)) / beside[j + 1]
        inverse += now**2
    weights = 1 / inverse
    nodes.flags.writeable = weights.flags.writeable = False
    return nodes, weights


def _gamma_rule(count: int, power: float) -> tuple[np.ndarray, np.ndarray]:
    """Gauss's nodes for x^power e^(-x), and weights that sum to 1, from the eigenvectors of the recurrence's matrix.

    SciPy's rule divides by Γ(power + 1), which overflows for powers above about 170.
    """
    k = np.arange(count)
    nodes, vectors = scipy.linalg.eigh_tridiagonal(2 * k + power + 1, np.sqrt(k[1:] * (k[1:] + power)))
    return nodes, vectors[0] ** 2


def gram_quadrature(dim: int, n_context: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Gram matrices G_q and weights w_q with E p(G) = Σ_q w_q p(G_q) for every polynomial p in G's entries up to a degree.

    G is the Gram matrix of n standard normal vectors: G = LLᵀ/n, where L is lower triangular (Bartlett) with independent
    entries, chi-distributed on the diagonal and normal below it, so a product of Gauss rules is exact. The number of
    matrices grows fast with ``dim``: for three layers (degree 6), it is 112 in two dimensions and 21,952 in three. In four
    dimensions, degree 4 takes 3 seconds and half a GiB.

    Args:
        dim: the dimension d.
        n_context: n, the number of examples.
        degree: the degree of p up to which the rule is exact.

    Returns:
        Matrices, shape (q, d, d), and positive weights that sum to 1, shape (q,).

    Raises:
        ValueError: if a call would take more than 300 s or 4 GiB.

    Source: Bartlett (1934), On the theory of statistical regression, for the factor L.
    """
    dim, n_context, degree = check_count("dim", dim), check_count("n_context", n_context), check_count("degree", degree)
    columns = min(dim, n_context)
    below = dim * columns - columns * (columns + 1) // 2
    matrices = math.exp(min(columns * math.log(degree // 2 + 1) + below * math.log(degree + 1), 700))
    numbers = matrices * (dim * (dim + columns) + columns + below)
    rule = float(degree // 2 + 1)  # nodes on the diagonal, from an eigenvalue problem of that size
    gib = (8 * numbers + 16 * rule**2) / 2**30
    check_cost("dim, n_context and degree", f"{dim}, {n_context} and {degree}", 4e-11 * columns * rule**3, gib)
    rules, places = [], []
    for j in range(columns):
        # odd powers of a diagonal entry come with odd powers of normal entries, whose symmetric rule gives 0
        squares, weights = _gamma_rule(degree // 2 + 1, (n_context - j) / 2 - 1)
        rules.append((np.sqrt(2 * squares), weights))
        places.append((j, j))
        for i in range(j + 1, dim):
            nodes, weights = scipy.special.roots_hermitenorm(degree + 1)
            rules.append((nodes, weights / weights.sum()))
            places.append((i, j))
    grids = np.meshgrid(*(nodes for nodes, _ in rules), indexing="ij")
    weights = functools.reduce(np.multiply.outer, [weights for _, weights in rules]).ravel()
    factors = np.zeros((weights.size, dim, columns))
    for (i, j), grid in zip(places, grids, strict=True):
        factors[:, i, j] = grid.ravel()
    return factors @ factors.transpose(0, 2, 1) / n_context, weights
