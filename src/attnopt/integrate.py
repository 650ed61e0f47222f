"""Flows, integrated to a tight tolerance by one solver with one set of refusals."""

import itertools
from collections.abc import Callable

import numpy as np
from scipy.integrate import solve_ivp

MOST_EVALUATIONS = 10**6


def follow(
    velocity: Callable[[np.ndarray], np.ndarray], start: np.ndarray, times: np.ndarray, relative: float, absolute: float
) -> np.ndarray:
    """Where a flow leads, by LSODA in float64.

    Args:
        velocity: of a state, both of shape (n,).
        start: the state at time 0, shape (n,).
        times: when to look, increasing from 0 or later, shape (t,).
        relative: tolerance.
        absolute: tolerance.

    Returns:
        The states, shape (t, n).

    Raises:
        RuntimeError: if the solver gives up, or would need more than a million evaluations of the velocity.
    """
    evaluations = itertools.count(1)

    def watched(time: float, state: np.ndarray) -> np.ndarray:
        if next(evaluations) > MOST_EVALUATIONS:  # entries of 10^30 ask for steps of 10^-60
            raise RuntimeError(f"the flow was not solved: {MOST_EVALUATIONS} evaluations led only to time {time:.3g}")
        found = velocity(state)
        if not np.isfinite(found).all():  # the solver would look for a smaller step for ever
            raise RuntimeError("the flow was not solved: the velocity is not finite in float64")
        return found

    span = 0.0, max(times[-1], 1e-100)  # the first step of a shorter way would vanish
    solution = solve_ivp(watched, span, start, method="LSODA", t_eval=times, rtol=relative, atol=absolute)
    if not solution.success:
        raise RuntimeError(f"the flow was not solved: {solution.message}")
    return solution.y.T
