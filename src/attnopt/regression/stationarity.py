"""When the linear model's cross-entropy has a finite minimiser."""

import numpy as np
from scipy.optimize import linprog
from torch import Tensor

from attnopt.checks import Axis, axis_dim, check_labels, check_matrices, check_matrix_shape

RESOLUTION = 1e-7  # the tolerance to which HiGHS satisfies the equations


def stationary_margin(weights: Tensor, labels: Tensor, axis: Axis) -> float:
    """How far inside the normalised matrices some P with Pθ = Cθ can lie: the largest possible smallest entry of P.

    The linear model has a finite minimiser Z, that is σ(Zθᵀ)θ = Cθ has a solution, exactly when this is positive.

    Args:
        weights: θ, shape (K, F).
        labels: C, shape (S, K), non-negative, summing to 1 along ``axis``.
        axis: along which softmax and labels are normalised.

    Returns:
        The margin, in [0, 1 / length of the axis], from a linear program solved to about 1e-7; smaller ones count as 0.

    Raises:
        TypeError: if an argument is not a real floating-point tensor, or the dtypes differ.
        ValueError: if the shapes do not fit (no leading dimensions here), an entry is not finite, or the labels are
            not distributions along ``axis``.

    Source: the chapter "Attention is a gradient"; Wainwright, Jordan (2008), Theorem 3.3, for exponential families.
    """
    dim = axis_dim(axis)
    check_matrices(weights=weights, labels=labels)
    if weights.ndim != 2 or labels.ndim != 2:
        raise ValueError(f"weights and labels must be matrices, got {tuple(weights.shape)} and {tuple(labels.shape)}")
    tokens, classes = labels.shape
    check_matrix_shape("labels", labels, (tokens, weights.shape[0]), "to match weights")
    check_labels(labels, axis)
    theta, target = weights.double().numpy(), labels.double().numpy()
    target /= target.sum(dim, keepdims=True)  # rounding alone must not make the program infeasible
    # Unknowns: the entries of Q = P - t ≥ 0, row by row, and t ≥ 0.
    equal_gradient = np.kron(np.eye(tokens), theta.T)
    sums = np.kron(np.ones((1, tokens)), np.eye(classes)) if dim == -2 else np.kron(np.eye(tokens), np.ones((1, classes)))
    equations = np.vstack([equal_gradient, sums])
    equations = np.hstack([equations, equations.sum(1, keepdims=True)])
    values = np.concatenate([(target @ theta).ravel(), np.ones(len(sums))])
    objective = np.zeros(equations.shape[1])
    objective[-1] = -1
    solution = linprog(objective, A_eq=equations, b_eq=values, bounds=(0, None), method="highs")
    if solution.status != 0:  # P = C is feasible and t is bounded, so only the solver itself can fail
        raise RuntimeError(f"the linear program was not solved: {solution.message}")
    margin = -solution.fun
    return float(margin) if margin > RESOLUTION else 0.0
