"""Gradients of the point-wise cross-entropy in the features, for the linear and the quadratic model."""

import torch
from torch import Tensor

from attnopt.checks import (
    Axis,
    axis_dim,
    check_broadcast,
    check_labels,
    check_matrices,
    check_matrix_shape,
    check_symmetric,
)


def linear_gradient(features: Tensor, weights: Tensor, labels: Tensor, axis: Axis) -> Tensor:
    """Gradient in Z of the cross-entropy of the linear model N = Zθᵀ: cross-attention minus Cθ.

    Args:
        features: Z, shape (..., S, F).
        weights: θ, shape (..., K, F).
        labels: C, shape (..., S, K), non-negative, summing to 1 along ``axis``.
        axis: the axis along which softmax and labels are normalized.

    Returns:
        The gradient, shape (..., S, F).

    Source: Actor, Gruber, Cyr (2025), eq. (4) and Corollary 1.
    """
    check_matrices(features=features, weights=weights, labels=labels)
    check_matrix_shape("weights", weights, (weights.shape[-2], features.shape[-1]), "to match features")
    check_matrix_shape("labels", labels, (features.shape[-2], weights.shape[-2]), "to match features and weights")
    check_broadcast(features=features, weights=weights, labels=labels)
    check_labels(labels, axis)
    return unchecked_linear(features, weights, labels, axis_dim(axis))


def quadratic_gradient(features: Tensor, weights: Tensor, labels: Tensor, axis: Axis) -> Tensor:
    """Gradient in Z of the cross-entropy of the quadratic model N = ZθZᵀ, θ symmetric: (σ + σᵀ - C - Cᵀ)Zθ.

    Attention over the keys and attention over the queries enter symmetrically, so ``axis`` only tells how the labels are
    normalized: exchanging the axis and replacing C by Cᵀ leaves the value unchanged.

    Args:
        features: Z, shape (..., S, F).
        weights: θ, shape (..., F, F), symmetric.
        labels: C, shape (..., S, S), non-negative, summing to 1 along ``axis``.
        axis: the axis along which softmax and labels are normalized.

    Returns:
        The gradient, shape (..., S, F).

    Source: proved in the chapter "When is attention a gradient?"; it corrects Actor, Gruber, Cyr (2025), Corollary 2.
    """
    _check_quadratic(features, weights, labels, axis)
    return unchecked_quadratic(features, weights, labels, axis_dim(axis))


def quadratic_gradient_of_paper(features: Tensor, weights: Tensor, labels: Tensor, axis: Axis) -> Tensor:
    """The papers' formula for the same gradient, 2σZθ - (C + Cᵀ)Zθ: wrong unless σZθ = σᵀZθ.

    It is kept for comparison with `quadratic_gradient`, which has the same arguments and raises the same errors.

    Args:
        features: Z, shape (..., S, F).
        weights: θ, shape (..., F, F), symmetric.
        labels: C, shape (..., S, S), non-negative, summing to 1 along ``axis``.
        axis: the axis along which softmax and labels are normalized.

    Returns:
        The value of the paper's formula, shape (..., S, F).

    Source: Actor, Gruber, Cyr (2025), eq. (8) and Corollary 2.
    """
    _check_quadratic(features, weights, labels, axis)
    return unchecked_quadratic_of_paper(features, weights, labels, axis_dim(axis))


# The formulas alone, for solvers that call them thousands of times on arguments that were checked once.


def unchecked_linear(features: Tensor, weights: Tensor, labels: Tensor, dim: int) -> Tensor:
    """(σ - C)θ, softmax along the dimension ``dim``."""
    return (torch.softmax(features @ weights.mT, dim) - labels) @ weights


def unchecked_quadratic(features: Tensor, weights: Tensor, labels: Tensor, dim: int) -> Tensor:
    """(σ + σᵀ - C - Cᵀ)Zθ, softmax along the dimension ``dim``."""
    residual = torch.softmax(features @ weights @ features.mT, dim) - labels
    return (residual + residual.mT) @ (features @ weights)


def unchecked_quadratic_of_paper(features: Tensor, weights: Tensor, labels: Tensor, dim: int) -> Tensor:
    """(2σ - C - Cᵀ)Zθ, softmax along the dimension ``dim``."""
    attention = torch.softmax(features @ weights @ features.mT, dim)
    return (2 * attention - labels - labels.mT) @ (features @ weights)


def _check_quadratic(features: Tensor, weights: Tensor, labels: Tensor, axis: Axis) -> None:
    """Require arguments that fit the quadratic model."""
    check_matrices(features=features, weights=weights, labels=labels)
    tokens, width = features.shape[-2:]
    check_matrix_shape("weights", weights, (width, width), "to match features")
    check_symmetric("weights", weights, factored=False)
    check_matrix_shape("labels", labels, (tokens, tokens), "to match features")
    check_broadcast(features=features, weights=weights, labels=labels)
    check_labels(labels, axis)
