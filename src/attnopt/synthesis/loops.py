"""Training of plain layers: gradient flow of their step sizes on the exact loss, and plateaus where steps are tied.

Layers A_i = a_i Σ⁻¹ have the loss f(a) = E tr Π (I + a_i G)², where G is the whitened Gram matrix. If all k layers share one
step size a, as in a loop, the loss is g(a) = E tr (I + aG)^{2k}.
"""

import functools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import torch
from scipy.integrate import quad
from scipy.optimize import brentq
from torch import Tensor

from attnopt.checks import as_numbers, check_count, check_number
from attnopt.in_context.steps import optimal_step_sizes
from attnopt.in_context.wishart import check_degree, spectral_moments, wishart_quadrature
from attnopt.integrate import follow

RELATIVE, ABSOLUTE = 1e-10, 1e-12
ROUNDS, CLOSE, HORIZONS = 50, 1e-13, 12  # most Newton steps, their last relative move, and flow times tried as starts

Rule = tuple[np.ndarray, np.ndarray]
Polynomial = list[Fraction]


def tied_optimum(dim: int, examples: int, layers: int) -> tuple[float, float]:
    """The step size that is best if all layers share it, as in a loop, and its loss g(a) = E tr (I + aG)^{2k}.

    G is the whitened Gram matrix. The loss is strictly convex in the step size a. The zero of its derivative, a polynomial
    with rational coefficients, is found by bisection with exact signs.

    Args:
        dim: the dimension d.
        examples: n, the number of labeled examples in a prompt.
        layers: number of layers k.

    Returns:
        The step a⋆, negative (for gradient descent), rounded to the nearest float64, and the loss, not divided by d. The
        call takes at most as long as `optimal_step_sizes`.

    Raises:
        ValueError: if a call would take more than 300 s or 4 GiB.

    Source: the chapter "Loops first".
    """
    taylor = _tied(check_count("dim", dim), check_count("examples", examples), check_count("layers", layers))[1]
    return _tied(dim, examples, layers)[0], float(taylor[0])


def tied_rates(dim: int, examples: int, layers: int) -> tuple[float, float]:
    """The rates at which the tied optimum attracts the mean of the steps and repels their differences.

    At the tied optimum, all steps are a⋆ (see `tied_optimum`), and the Hessian of the loss is A (2·11ᵀ - I), where
    A = g''(a⋆) / (k(2k - 1)). So along gradient flow, the mean of the steps returns at rate (2k - 1) A, and their
    differences grow at rate A.

    Args:
        dim: the dimension d.
        examples: n, the number of labeled examples in a prompt.
        layers: number of layers k, at least 2 (one layer has no differences).

    Returns:
        The rate of attraction, (2k - 1) A, and that of repulsion, A, both positive.

    Raises:
        ValueError: if a call would take more than 300 s or 4 GiB.

    Source: the chapter "Loops first".
    """
    layers = check_count("layers", layers, 2)
    taylor = _tied(check_count("dim", dim), check_count("examples", examples), layers)[1]
    repulsion = 2 * taylor[2] / (layers * (2 * layers - 1))
    return float((2 * layers - 1) * repulsion), float(repulsion)


def grouped_optimum(groups: Sequence[int], dim: int, examples: int) -> tuple[Tensor, float]:
    """Given ordered groups of layers, the only critical point where the layers of a group, and no others, have equal steps.

    With one group, it is the tied optimum; with one layer per group, it is the global minimum. Otherwise it is a saddle,
    where training may pause on its way from the tied optimum to the global minimum.

    Args:
        groups: number of layers in each group, in the order of increasing magnitude of their steps.
        dim: the dimension d.
        examples: n, the number of labeled examples in a prompt.

    Returns:
        The groups' steps, all negative, in the order of increasing magnitude, float64, shape (groups,), and the loss there.

    Raises:
        ValueError: if a call would take more than 300 s or 4 GiB.
        RuntimeError: if the critical point is not found.

    Source: the chapter "Loops first".
    """
    if not isinstance(groups, Sequence) or isinstance(groups, str | bytes):
        raise TypeError(f"groups must be a sequence of integers, got {groups!r}")
    counts = np.array([check_count("groups", count) for count in groups], dtype=int)
    if len(counts) == 0:
        raise ValueError("groups must not be empty")
    layers = int(counts.sum())
    rule = wishart_quadrature(check_count("dim", dim), check_count("examples", examples), layers + 1)
    best = optimal_step_sizes(dim, examples, layers)[0].numpy()
    start = np.array([part.mean() for part in np.split(best, np.cumsum(counts)[:-1])])[::-1]
    counts = counts[::-1].copy()  # from here on, steps increase, an order that the flow keeps
    found = _critical(start, counts, rule)
    for power in range(HORIZONS):
        if found is not None:
            break
        found = _critical(_follow(start, counts, rule, np.array([4.0**power]))[-1], counts, rule)
    if found is None:
        raise RuntimeError(f"the critical point of groups {list(groups)} was not found for d = {dim}, n = {examples}")
    loss = _integral(found, 2 * counts, rule[1], rule)
    return torch.from_numpy(found[::-1].copy()), float(loss)


def step_flow(starts: Tensor | Sequence[float], dim: int, examples: int, times: Tensor | Sequence[float]) -> Tensor:
    """Steps along the gradient flow ȧ = -∇f(a) of the exact loss f(a) = E tr Π (I + a_i G)².

    G is the whitened Gram matrix. The solver, with relative tolerance 1e-10, follows the smallest step and the logarithms of
    the gaps between neighbors. So the order is kept, steps that start equal stay equal, and a gap of 10⁻¹² grows as
    accurately as one of 0.1. The solver works in float64 on the CPU; the result has the dtype and device of ``starts``.

    Args:
        starts: steps a_i at time 0 (negative for gradient descent), shape (..., layers).
        dim: the dimension d.
        examples: n, the number of labeled examples in a prompt.
        times: the times of the returned steps, one-dimensional, strictly increasing, not negative.

    Returns:
        The steps at each time, shape (times, ..., layers).

    Raises:
        RuntimeError: if the solver gives up, or would need more than a million evaluations of the gradient.

    Source: the chapter "Loops first".
    """
    starts, times = as_numbers("starts", starts), as_numbers("times", times)
    if times.ndim != 1 or times[0] < 0 or not (times.diff() > 0).all():
        raise ValueError(f"times must be one-dimensional, not negative and strictly increasing, got {times.tolist()}")
    layers = starts.shape[-1]
    rule = wishart_quadrature(check_count("dim", dim), check_count("examples", examples), layers + 1)
    seen = times.detach().double().cpu().numpy()
    ways = []
    for row in starts.detach().double().cpu().reshape(-1, layers).numpy():
        values, group, counts = np.unique(row, return_inverse=True, return_counts=True)
        ways.append(_follow(values, counts, rule, seen)[:, group])
    return torch.from_numpy(np.stack(ways, axis=1)).reshape(len(seen), *starts.shape).to(starts)


def plateau_time(starts: Tensor | Sequence[float], dim: int, examples: int, reached: float) -> Tensor:
    """The time at which steps that start almost equal have come apart: their range has grown to a given size.

    The range is the largest minus the smallest step, and g(a) the loss of k equal steps (see `tied_optimum`). To first
    order, the range grows at rate g''(a) / (k(2k - 1)), while the mean a follows the flow of equal steps, ȧ = -g'(a)/k. At
    the optimum a⋆, this is the rate of repulsion A (see `tied_rates`). If the extremes are not equally far from the
    mean, the next order adds (B/A²) (largest + smallest - 2 mean) to the time, evaluated when the tie breaks; here
    B = g‴(a⋆) / (k(2k - 1)(2k - 2)). The remaining error is of the order of ``reached`` squared and of the initial range.

    Along the flow, equal steps stay equal. The flow leads to the `grouped_optimum` whose groups are the equal steps in
    ``starts``; ``reached`` must be less than the range of that optimum.

    Args:
        starts: steps a_i at time 0 (negative for gradient descent), not all equal, shape (..., layers), at least two layers.
        dim: the dimension d.
        examples: n, the number of labeled examples in a prompt.
        reached: the range at which the tie counts as broken, larger than that of ``starts`` and smaller than that to which
            the flow leads.

    Returns:
        The time along ȧ = -∇f(a), shape (...).

    Raises:
        ValueError: if ``reached`` is not between the range of ``starts`` and that to which the flow leads.

    Source: the chapter "Loops first".
    """
    starts = as_numbers("starts", starts)
    if starts.shape[-1] < 2:
        raise ValueError(f"starts must be of at least two layers, got shape {tuple(starts.shape)}")
    rows = starts.detach().double().cpu().reshape(-1, starts.shape[-1]).numpy()
    if not (np.ptp(rows, axis=-1) > 0).all():
        raise ValueError("starts must not be all equal: such a tie never breaks")
    check_number("reached", reached, float(np.ptp(rows, axis=-1).max()))
    sizes = check_count("dim", dim), check_count("examples", examples), starts.shape[-1]
    for row in rows:
        groups = tuple(np.unique(row, return_counts=True)[1][::-1].tolist())
        if not reached < (final := _final_spread(groups, *sizes[:2])):
            raise ValueError(f"reached must be less than {final:.6g}, the spread to which the flow leads, got {reached}")
    leans = (rows.max(-1) + rows.min(-1) - 2 * rows.mean(-1)) / np.ptp(rows, axis=-1)
    of_row = zip(rows.mean(-1), np.ptp(rows, axis=-1), leans, strict=True)
    found = [tie_breaks(float(mean), float(spread), float(lean), sizes, reached) for mean, spread, lean in of_row]
    return torch.tensor(found, dtype=starts.dtype, device=starts.device).reshape(starts.shape[:-1])


def tie_breaks(mean: float, spread: float, lean: float, sizes: tuple[int, int, int], reached: float) -> float:
    """`plateau_time` from the starts' mean, range, and ``lean`` = (largest + smallest - 2 mean) / range; sizes d, n, k."""
    dim, examples, layers = sizes
    best, taylor = _tied(dim, examples, layers)
    growth, repulsion = math.log(reached / spread), tied_rates(dim, examples, layers)[1]
    time = growth / repulsion
    if layers > 2:
        third = float(6 * taylor[3] / (layers * (2 * layers - 1) * (2 * layers - 2)))
        time += third / repulsion**2 * lean * (reached - spread)
    away = mean - best
    # with u = a - a⋆: g'(a) = u·slope(u), 1 - c(a)/A = u·bend(u), both polynomials exact
    slope = [j * taylor[j] for j in range(2, 2 * layers + 1)]
    bend = [-Fraction(j * (j - 1), 2) * taylor[j] / taylor[2] for j in range(3, 2 * layers + 1)]
    left = float(Fraction(away) * _value(slope, away)) * math.exp(-(2 * layers - 1) * growth)  # g' when the tie breaks
    if left == 0:
        end = 0.0
    else:
        end = brentq(lambda u: float(Fraction(u) * _value(slope, u)) - left, *sorted((0.0, away)), xtol=1e-15 * abs(away))
    return time + quad(lambda u: layers * float(_value(bend, u) / _value(slope, u)), end, away, epsabs=1e-13, limit=500)[0]


@functools.cache
def _final_spread(groups: tuple[int, ...], dim: int, examples: int) -> float:
    """Largest minus smallest step at the critical point of these groups."""
    steps = grouped_optimum(groups, dim, examples)[0]
    return (steps.max() - steps.min()).item()


def tied_expansion(dim: int, examples: int, layers: int) -> Polynomial:
    """Taylor coefficients of g(a) = E tr (I + aG)^{2k} at its minimum as rounded by `tied_optimum`, exact for that point."""
    return _tied(dim, examples, layers)[1]


@functools.cache
def _tied(dim: int, examples: int, layers: int) -> tuple[float, Polynomial]:
    """The tied optimum a⋆, and the Taylor coefficients of g there, exact for the rounded a⋆."""
    check_degree("layers", layers, dim, examples, layers + 1)
    moments = spectral_moments(dim, examples, 2 * layers + 1)
    g = [Fraction(math.comb(2 * layers, j) * moment, examples**j) for j, moment in enumerate(moments)]
    derivative = [j * coefficient for j, coefficient in enumerate(g)][1:]
    low, high = -1.0, 0.0  # g' increases, and is positive at 0
    while _value(derivative, low) >= 0:
        low, high = 2 * low, low
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _value(derivative, middle) < 0 else (low, middle)
    best = low if _value(derivative, (Fraction(low) + Fraction(high)) / 2) >= 0 else high
    return best, [
        sum((math.comb(i, j) * g[i] * Fraction(best) ** (i - j) for i in range(j, 2 * layers + 1)), Fraction())
        for j in range(2 * layers + 1)
    ]


def _value(coefficients: Polynomial, at: float | Fraction) -> Fraction:
    """The exact value of a polynomial."""
    at = Fraction(at)
    return functools.reduce(lambda total, coefficient: total * at + coefficient, reversed(coefficients), Fraction(0))


def _integral(values: np.ndarray, powers: np.ndarray, factor: np.ndarray, rule: Rule) -> np.ndarray:
    """∫ Π_j (1 + b_j λ)^{p_j} dμ with the weights in ``factor``, for rows of powers, shape (..., groups)."""
    return ((1 + values[:, None] * rule[0]) ** powers[..., None]).prod(-2) @ factor


def _follow(values: np.ndarray, counts: np.ndarray, rule: Rule, times: np.ndarray) -> np.ndarray:
    """Groups' steps along the flow, shape (times, groups); they must start in increasing order."""
    return follow_gaps(values[0], np.log(np.diff(values)), counts, rule, times)


def follow_gaps(smallest: float, gaps: np.ndarray, counts: np.ndarray, rule: Rule, times: np.ndarray) -> np.ndarray:
    """Groups' steps along the flow, from the smallest and the logarithms of the gaps between neighbors, (times, groups)."""
    nodes, weights = rule
    one = np.eye(len(counts), dtype=int)
    powers = np.vstack([2 * counts - one[0], 2 * counts - one[:-1] - one[1:]])[..., None].astype(float)
    factors = np.vstack([-2 * weights * nodes, *[2 * weights * nodes**2] * len(gaps)])

    def steps(state: np.ndarray) -> np.ndarray:
        return np.cumsum(np.concatenate([state[:1], np.exp(state[1:])]), axis=0)

    def velocity(state: np.ndarray) -> np.ndarray:
        return (((1 + steps(state)[:, None] * nodes) ** powers).prod(-2) * factors).sum(-1)

    with np.errstate(over="ignore", invalid="ignore"):
        states = follow(velocity, np.append(smallest, gaps), times, RELATIVE, ABSOLUTE)
    return steps(states.T).T


def _critical(values: np.ndarray, counts: np.ndarray, rule: Rule) -> np.ndarray | None:
    """The only critical point with increasing steps, if Newton's method leads to it, or None."""
    nodes, weights = rule
    one = np.eye(len(values), dtype=int)
    for _ in range(ROUNDS):
        slope = 2 * counts * _integral(values, 2 * counts - one, weights * nodes, rule)
        each = (2 * counts - one)[:, None, :] - one  # 1/((1 + b_iλ)(1 + b_jλ)) of r², by powers
        hessian = _integral(values, each, weights * nodes**2, rule) * (2 * counts)[:, None] * (2 * counts - one)
        try:
            move = np.linalg.solve(hessian, slope)
        except np.linalg.LinAlgError:
            return None
        values = values - move
        if not np.isfinite(values).all() or not (np.diff(values) > 0).all():
            return None
        if np.abs(move).max() <= CLOSE * np.abs(values).min():
            return values
    return None
