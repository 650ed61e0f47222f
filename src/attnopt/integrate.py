"""Integrate flows to a tight tolerance, all with the same solver and the same errors."""

import itertools
from collections.abc import Callable

import numpy as np
from scipy.integrate import solve_ivp

MOST_EVALUATIONS = 10**6


def follow(
    velocity: Callable[[np.ndarray], np.ndarray],
    start: np.ndarray,
    times: np.ndarray,
    relative: float,
    absolute: float,
    block: int | None = None,
) -> np.ndarray:
    """The states of a flow at given times, computed by LSODA in float64.

    Args:
        velocity: function from a state to its velocity, both of shape (n,).
        start: the state at time 0, shape (n,).
        times: the times of the returned states, increasing from 0 or later, shape (t,).
        relative: relative tolerance.
        absolute: absolute tolerance.
        block: if given, the state consists of consecutive blocks of this many entries, and no block affects another. The
            solver then estimates the Jacobian of the velocity from 2 · block - 1 velocities instead of n.

    Returns:
        The states, shape (t, n).

    Raises:
        RuntimeError: if the solver gives up, or would need more than a million evaluations of the velocity.
    """
    evaluations = itertools.count(1)

    def watched(time: float, state: np.ndarray) -> np.ndarray:
        if next(evaluations) > MOST_EVALUATIONS:  # entries of 10^30 require steps of 10^-60
            raise RuntimeError(f"the flow was not solved: {MOST_EVALUATIONS} evaluations led only to time {time:.3g}")
        found = velocity(state)
        if not np.isfinite(found).all():  # otherwise, the solver would try smaller steps forever
            raise RuntimeError("the flow was not solved: the velocity is not finite in float64")
        return found

    span = 0.0, max(times[-1], 1e-100)  # in a shorter span, the first step would vanish
    band = None if block is None or block == len(start) else block - 1
    how = {"method": "LSODA", "rtol": relative, "atol": absolute, "lband": band, "uband": band}
    solution = solve_ivp(watched, span, start, t_eval=times, **how)
    if not solution.success:
        raise RuntimeError(f"the flow was not solved: {solution.message}")
    return solution.y.T
