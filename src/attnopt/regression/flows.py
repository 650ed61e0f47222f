"""The gradient flow of the cross-entropy in the features, solved to a tight tolerance."""

import math
from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from attnopt.checks import Axis, axis_dim, check_flag, check_word
from attnopt.integrate import follow
from attnopt.regression.gradients import (
    linear_gradient,
    quadratic_gradient,
    quadratic_gradient_of_paper,
    unchecked_linear,
    unchecked_quadratic,
    unchecked_quadratic_of_paper,
)

Model = Literal["linear", "quadratic"]
RELATIVE, ABSOLUTE = 1e-11, 1e-13
Formula = Callable[[Tensor, Tensor, Tensor, Axis], Tensor]
UNCHECKED: dict[Formula, Callable[[Tensor, Tensor, Tensor, int], Tensor]] = {
    linear_gradient: unchecked_linear,
    quadratic_gradient: unchecked_quadratic,
    quadratic_gradient_of_paper: unchecked_quadratic_of_paper,
}


def feature_gradient(model: Model, printed: bool = False) -> Formula:
    """The function that computes a model's gradient, or the paper's formula for it.

    Args:
        model: "linear" (N = Zθᵀ) or "quadratic" (N = ZθZᵀ).
        printed: whether to return the paper's formula instead of the gradient; for the linear model, the two agree.

    Returns:
        One of `linear_gradient`, `quadratic_gradient`, and `quadratic_gradient_of_paper`.
    """
    check_word("model", model, get_args(Model))
    check_flag("printed", printed)
    if model == "linear":
        return linear_gradient
    return quadratic_gradient_of_paper if printed else quadratic_gradient


def feature_flow(
    features: Tensor,
    weights: Tensor,
    labels: Tensor,
    axis: Axis,
    times: Tensor,
    model: Model = "linear",
    printed: bool = False,
) -> Tensor:
    """Features along the gradient flow Ż = -∂ℓ(Z) of the cross-entropy, by LSODA with relative tolerance 1e-11.

    LSODA switches to an implicit method where rates differ greatly, as at long times; up to time 1000, we have seen errors
    of 3e-9. The members of a batch share the solver's steps, which suit the fastest of them. The solver works in float64 on
    the CPU; the result has the dtype and device of ``features``.

    Args:
        features: Z at time 0, shape (..., S, F).
        weights: θ, shape (..., K, F), or (..., F, F) and symmetric for the quadratic model.
        labels: C, shape (..., S, K), non-negative, summing to 1 along ``axis``.
        axis: the axis along which softmax and labels are normalized.
        times: the times of the returned features, one-dimensional, strictly increasing, not negative.
        model: "linear" (N = Zθᵀ) or "quadratic" (N = ZθZᵀ).
        printed: whether to follow minus the paper's formula instead of minus the gradient; for the linear model, the two
            agree.

    Returns:
        The features at each time, shape (len(times), ..., S, F), with the leading dimensions broadcast.

    Raises:
        RuntimeError: if the solver gives up, or would need more than a million evaluations of the gradient.

    Source: Actor, Gruber, Cyr (2025), eq. (5).
    """
    formula = feature_gradient(model, printed)
    if not isinstance(times, Tensor):
        raise TypeError(f"times must be a torch.Tensor, got {type(times).__name__}")
    if times.ndim != 1 or len(times) == 0 or times[0] < 0 or not (times.diff() > 0).all() or not times.isfinite().all():
        raise ValueError(f"times must be one-dimensional, finite, not negative and strictly increasing, got {times}")
    shape = formula(features, weights, labels, axis).shape  # checks the arguments; broadcasts the leading dimensions
    unchecked, dim = UNCHECKED[formula], axis_dim(axis)
    theta, target = (value.detach().double().cpu() for value in (weights, labels))
    start = features.detach().double().cpu().expand(shape)

    def velocity(flat: np.ndarray) -> np.ndarray:
        return -unchecked(torch.from_numpy(flat).reshape(shape), theta, target, dim).numpy().ravel()

    seen = times.detach().double().cpu().numpy()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # many small products: on a busy machine a second thread makes each a hundred times slower
    try:
        states = follow(velocity, start.numpy().ravel(), seen, RELATIVE, ABSOLUTE, math.prod(shape[-2:]))
    finally:
        torch.set_num_threads(threads)
    path = torch.from_numpy(states.copy()).reshape(len(seen), *shape)
    if seen[0] == 0:
        path[0] = start  # the solver would round it
    return path.to(features)
