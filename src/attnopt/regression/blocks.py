"""Transformer blocks as steps of the feature flow: explicit Euler, two splittings, and the block as published."""

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from attnopt.checks import (
    Axis,
    axis_dim,
    check_broadcast,
    check_count,
    check_labels,
    check_matrices,
    check_matrix_shape,
    check_number,
    check_word,
)
from attnopt.regression.flows import UNCHECKED, Model, feature_gradient

Scheme = Literal["euler", "lie", "strang", "printed"]
SUBSTEPS = 4  # Runge-Kutta steps along attention in a layer: at unit steps, their error is below 1e-4


def block_step(
    features: Tensor,
    weights: Tensor,
    labels: Tensor,
    axis: Axis,
    step: float = 1.0,
    scheme: Scheme = "euler",
    model: Model = "linear",
) -> Tensor:
    """One layer: a step of the feature flow Ż = A(Z) + B(Z), where A is minus attention and B holds the labels.

    Linear model: A(Z) = -σ(Zθᵀ)θ, B = Cθ. Quadratic model: A(Z) = -(σ + σᵀ)Zθ, B(Z) = (C + Cᵀ)Zθ.

    Args:
        features: Z, shape (..., S, F).
        weights: θ, shape (..., K, F), or (..., F, F) and symmetric for the quadratic model.
        labels: C, shape (..., S, K), non-negative, summing to 1 along ``axis``.
        axis: the axis along which softmax and labels are normalized.
        step: h, the length of the step; 1 in the paper's block.
        scheme: "euler" is Z + h(A + B)(Z). "printed" is the paper's block, eqs (7) and (9): an Euler step along A, then
            one along B, with their formula -2σZθ for A in the quadratic model. "lie" follows A for a time h, then B;
            "strang" follows B for h/2, A for h, and B for h/2. Both follow B exactly, and A by
            four steps of the classical Runge-Kutta method of order 4.
        model: "linear" (N = Zθᵀ) or "quadratic" (N = ZθZᵀ).

    Returns:
        The features after the layer, shape (..., S, F).

    Source: Actor, Gruber, Cyr (2025), eqs (7) and (9); McLachlan, Quispel (2002) for the splittings.
    """
    check_number("step", step)
    feature_gradient(model)(features, weights, labels, axis)  # checks the arguments
    return _rule(scheme, model)(features, weights, labels, axis_dim(axis), step)


def unroll(
    features: Tensor,
    weights: Tensor | Sequence[Tensor],
    labels: Tensor,
    axis: Axis,
    layers: int,
    step: float = 1.0,
    scheme: Scheme = "euler",
    model: Model = "linear",
) -> Tensor:
    """The features before and after each of several layers of `block_step`.

    Args:
        features: Z, shape (..., S, F).
        weights: one θ for all layers, or a sequence of one θ per layer.
        labels: C, shape (..., S, K).
        axis: the axis along which softmax and labels are normalized.
        layers: number of layers.
        step: as in `block_step`.
        scheme: as in `block_step`.
        model: as in `block_step`.

    Returns:
        The input and the output of every layer, shape (layers + 1, ..., S, F).
    """
    check_count("layers", layers, 0)
    if not isinstance(weights, (Tensor, Sequence)):
        raise TypeError(f"weights must be a torch.Tensor or a sequence of them, got {type(weights).__name__}")
    of_layer = [weights] * layers if isinstance(weights, Tensor) else list(weights)
    if len(of_layer) != layers:
        raise ValueError(f"weights must be one tensor or one per layer ({layers}), got {len(of_layer)}")
    check_number("step", step)
    rule, dim = _rule(scheme, model), axis_dim(axis)
    for theta in [weights] if isinstance(weights, Tensor) else of_layer:
        shape = feature_gradient(model)(features, theta, labels, axis).shape  # checks the arguments
        features = features.expand(shape)
    seen = [features]
    for theta in of_layer:
        seen.append(rule(seen[-1], theta, labels, dim, step))
    return torch.stack(seen)


def unroll_logits(logits: Tensor, weights: Tensor, labels: Tensor, axis: Axis, layers: int, step: float = 1.0) -> Tensor:
    """The logits after each of several Euler layers of the linear model, computed without the features.

    A layer adds h(C - σ(N))θ to the features, so it adds h(C - σ(N))θθᵀ to N = Zθᵀ, which costs S·K² operations
    instead of S·K·F. The logits may include an offset, such as a classifier's bias.

    Args:
        logits: N at the input, shape (..., S, K).
        weights: θ, shape (..., K, F).
        labels: C, shape (..., S, K), non-negative, summing to 1 along ``axis``.
        axis: the axis along which softmax and labels are normalized.
        layers: number of layers.
        step: h, the length of a layer's step.

    Returns:
        Logits at the input and after every layer, shape (layers + 1, ..., S, K).
    """
    dim = axis_dim(axis)
    check_matrices(logits=logits, weights=weights, labels=labels)
    check_matrix_shape("weights", weights, (logits.shape[-1], weights.shape[-1]), "to match logits")
    check_matrix_shape("labels", labels, logits.shape[-2:], "like logits")
    check_broadcast(logits=logits, weights=weights, labels=labels)
    check_labels(labels, axis)
    check_count("layers", layers, 0)
    check_number("step", step)
    gram = step * weights @ weights.mT
    leading = torch.broadcast_shapes(*(value.shape[:-2] for value in (logits, weights, labels)))
    seen = [logits.expand(*leading, *logits.shape[-2:])]
    for _ in range(layers):
        seen.append(seen[-1] + (labels - torch.softmax(seen[-1], dim)) @ gram)
    return torch.stack(seen)


Rule = Callable[[Tensor, Tensor, Tensor, int, float], Tensor]


def _rule(scheme: Scheme, model: Model) -> Rule:
    """The layer's map as a function of features, weights, labels, softmax dimension, and step, without checks."""
    check_word("scheme", scheme, get_args(Scheme))
    gradient = UNCHECKED[feature_gradient(model)]
    attend, follow_labels = (
        (_linear_attention, _follow_linear_labels) if model == "linear" else (_quadratic_attention, _follow_quadratic_labels)
    )

    def follow_attention(z: Tensor, theta: Tensor, dim: int, h: float) -> Tensor:
        h /= SUBSTEPS
        for _ in range(SUBSTEPS):
            first = attend(z, theta, dim)
            second = attend(z + h / 2 * first, theta, dim)
            third = attend(z + h / 2 * second, theta, dim)
            fourth = attend(z + h * third, theta, dim)
            z = z + h / 6 * (first + 2 * second + 2 * third + fourth)
        return z

    def euler(z: Tensor, theta: Tensor, labels: Tensor, dim: int, h: float) -> Tensor:
        return z - h * gradient(z, theta, labels, dim)

    def printed(z: Tensor, theta: Tensor, labels: Tensor, dim: int, h: float) -> Tensor:
        if model == "linear":
            return follow_labels(z + h * attend(z, theta, dim), theta, labels, h)
        z = z - 2 * h * torch.softmax(z @ theta @ z.mT, dim) @ (z @ theta)
        return z + h * (labels + labels.mT) @ (z @ theta)

    def lie(z: Tensor, theta: Tensor, labels: Tensor, dim: int, h: float) -> Tensor:
        return follow_labels(follow_attention(z, theta, dim, h), theta, labels, h)

    def strang(z: Tensor, theta: Tensor, labels: Tensor, dim: int, h: float) -> Tensor:
        z = follow_attention(follow_labels(z, theta, labels, h / 2), theta, dim, h)
        return follow_labels(z, theta, labels, h / 2)

    return {"euler": euler, "printed": printed, "lie": lie, "strang": strang}[scheme]


def _linear_attention(z: Tensor, theta: Tensor, dim: int) -> Tensor:
    """A(Z) = -σ(Zθᵀ)θ."""
    return -torch.softmax(z @ theta.mT, dim) @ theta


def _follow_linear_labels(z: Tensor, theta: Tensor, labels: Tensor, h: float) -> Tensor:
    """The flow of the constant field Cθ."""
    return z + h * labels @ theta


def _quadratic_attention(z: Tensor, theta: Tensor, dim: int) -> Tensor:
    """A(Z) = -(σ + σᵀ)Zθ."""
    attention = torch.softmax(z @ theta @ z.mT, dim)
    return -(attention + attention.mT) @ (z @ theta)


def _follow_quadratic_labels(z: Tensor, theta: Tensor, labels: Tensor, h: float) -> Tensor:
    """The flow of the linear field (C + Cᵀ)Zθ: in the eigenbases of both factors each entry grows by itself."""
    among_tokens, left = torch.linalg.eigh(labels + labels.mT)
    among_features, right = torch.linalg.eigh(theta)
    growth = torch.exp(h * among_tokens.unsqueeze(-1) * among_features.unsqueeze(-2))
    return left @ (growth * (left.mT @ z @ right)) @ right.mT
