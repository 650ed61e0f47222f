"""When the linear model's cross-entropy has a finite minimizer, and how fast features diverge when it has none."""

import numpy as np
from scipy.optimize import linprog, nnls
from torch import Tensor

from attnopt.checks import Axis, axis_dim, check_labels, check_matrices, check_matrix_shape

RESOLUTION = 1e-7  # the tolerance to which HiGHS satisfies the equations


def stationary_margin(weights: Tensor, labels: Tensor, axis: Axis) -> float:
    """The largest possible value of the smallest entry of P, over normalized matrices P with Pθ = Cθ.

    The linear model has a finite minimizer Z, that is, σ(Zθᵀ)θ = Cθ has a solution, exactly when this margin is positive.

    Args:
        weights: θ, shape (K, F).
        labels: C, shape (S, K), non-negative, summing to 1 along ``axis``.
        axis: the axis along which softmax and labels are normalized.

    Returns:
        The margin, in [0, 1 / length of the axis], from a linear program solved to about 1e-7; smaller margins are set to 0.

    Raises:
        RuntimeError: if the solver fails.

    Source: the chapter "When is attention a gradient?"; Wainwright, Jordan (2008), Theorem 3.3, for exponential families.
    """
    dim = _check_problem(weights, labels, axis)
    tokens, classes = labels.shape
    theta, target = (value.detach().double().cpu().numpy() for value in (weights, labels))
    target = target / target.sum(dim, keepdims=True)  # rounding alone must not make the program infeasible
    # Unknowns: the entries of Q = P - t ≥ 0, row by row, and t ≥ 0.
    equal_gradient = np.kron(np.eye(tokens), theta.T)
    sums = np.kron(np.ones(tokens), np.eye(classes)) if dim == -2 else np.kron(np.eye(tokens), np.ones(classes))
    equations = np.vstack([equal_gradient, sums])
    equations = np.hstack([equations, equations.sum(1, keepdims=True)])
    values = np.concatenate([(target @ theta).ravel(), np.ones(len(sums))])
    objective = np.zeros(equations.shape[1])
    objective[-1] = -1
    solution = linprog(objective, A_eq=equations, b_eq=values)  # by HiGHS, over unknowns ≥ 0
    if solution.status != 0:  # P = C is feasible and t is bounded, so only the solver itself can fail
        raise RuntimeError(f"the linear program was not solved: {solution.message}")
    margin = -solution.fun
    return float(margin) if margin > RESOLUTION else 0.0


def separation_margin(weights: Tensor, labels: Tensor, axis: Axis) -> float:
    """The largest margin γ by which features of norm 1 raise every one-hot label's logit above all others of its slice.

    If γ is positive, then along the gradient flow of the linear model the features diverge like log(t)/γ, and the
    cross-entropy falls like 1/(γ²t). For one token and softmax over classes, a positive γ is the distance of the label's
    weight vector from the convex hull of the others.

    Args:
        weights: θ, shape (K, F).
        labels: C, shape (S, K), one-hot along ``axis``.
        axis: the axis along which softmax and labels are normalized, of length 2 or more.

    Returns:
        The maximum over ‖Z‖ = 1 of the smallest difference of logits; 0 if that is not positive, or is less than 1e-7
        times the largest gradient norm among these differences.

    Source: the chapter "The flow of features"; Soudry et al. (2018) for logistic regression.
    """
    dim = _check_problem(weights, labels, axis)
    soft = labels[(labels != 0) & (labels != 1)]
    if len(soft):
        raise ValueError(f"labels must be one-hot along the {axis} axis, got an entry {soft[0].item():.3g}")
    if labels.shape[dim] < 2:
        raise ValueError(f"labels must have two or more entries along the {axis} axis, got shape {tuple(labels.shape)}")
    tokens, classes = labels.shape
    theta, target = (value.detach().double().cpu().numpy() for value in (weights, labels))
    # One row for each wrong entry of a slice: the derivative in Z of the label's logit minus that entry's logit.
    differences = []
    for token, label in np.argwhere(target == 1):
        others = (
            [(token, other) for other in range(classes) if other != label]
            if dim == -1
            else [(other, label) for other in range(tokens) if other != token]
        )
        for other_token, other_label in others:
            difference = np.zeros((tokens, theta.shape[1]))
            difference[token] += theta[label]
            difference[other_token] -= theta[other_label]
            differences.append(difference.ravel())
    # By duality γ is the distance of their convex hull from 0. Non-negative least squares finds it: the least value of
    # ‖Dx‖² + (Σx - 1)² over x ≥ 0 is γ²/(1 + γ²), reached at a multiple of the hull's nearest point.
    matrix = np.vstack([np.array(differences).T, np.ones(len(differences))])
    solution, _ = nnls(matrix, np.eye(len(matrix))[-1])
    margin = np.linalg.norm(matrix[:-1] @ solution) / solution.sum()
    return float(margin) if margin > RESOLUTION * np.linalg.norm(matrix[:-1], axis=0).max() else 0.0


def _check_problem(weights: Tensor, labels: Tensor, axis: Axis) -> int:
    """Check the arguments of one problem, without leading dimensions, and return the softmax dimension."""
    dim = axis_dim(axis)
    check_matrices(weights=weights, labels=labels)
    if weights.ndim != 2 or labels.ndim != 2:
        raise ValueError(f"weights and labels must be matrices, got {tuple(weights.shape)} and {tuple(labels.shape)}")
    check_matrix_shape("labels", labels, (labels.shape[0], weights.shape[0]), "to match weights")
    check_labels(labels, axis)
    return dim
