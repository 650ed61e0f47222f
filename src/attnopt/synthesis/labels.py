"""Labels in context: multinomial regression on a prompt's own examples, layer by layer, and what may be known of a label.

A task of two classes, of which much is known exactly: labels y = ±1, points x = y(μ + noise) with noise ~ N(0, I) and a
mean μ ~ N(0, τ²I) that is new in every prompt. τ² = 0 makes the labels coin flips.
"""

import math
from collections.abc import Sequence

import torch
from scipy.special import stdtr
from torch import Tensor

from attnopt.checks import (
    as_numbers,
    check_broadcast,
    check_count,
    check_matrices,
    check_matrix_shape,
    check_number,
    check_symmetric,
)


def label_layers(
    similarities: Tensor, labels: Tensor, classes: Tensor, steps: Tensor | Sequence[float], queries: int = 1
) -> Tensor:
    """Features of all tokens after each layer Z ← Z - (h/n) 𝒦M(σ(Zθᵀ) - C)θ, from Z = 0.

    With 𝒦 = XAXᵀ a layer is a step of gradient descent, preconditioned by A, on the cross-entropy of the examples, and the
    token j shows Wᵀx_j. With a kernel for 𝒦 it is a step in the kernel's space of functions.

    Args:
        similarities: 𝒦, of every token (row) to every token (column), shape (..., m, m).
        labels: C, a distribution over the classes for every token, shape (..., m, K). Those of queries are not read.
        classes: θ, a vector for each class, shape (..., K, F).
        steps: h of each layer, shape (layers,).
        queries: how many tokens, the last ones, the mask M hides; the other n are the examples. With 0 a layer is one of
            Part I where 𝒦 is n times the identity.

    Returns:
        Z before the first and after each layer, shape (layers + 1, ..., m, F).

    Source: the chapter "Labels in context"; of it with a kernel Wang, Convertino, Cheng, Henao, Carin (2025).
    """
    check_matrices(similarities=similarities, labels=labels, classes=classes)
    tokens = labels.shape[-2]
    check_matrix_shape("similarities", similarities, (tokens, tokens), "for as many tokens as labels")
    check_matrix_shape("classes", classes, (labels.shape[-1], classes.shape[-1]), "for as many classes as labels")
    check_broadcast(similarities=similarities, labels=labels, classes=classes)
    steps = as_numbers("steps", steps)
    if steps.ndim != 1:
        raise ValueError(f"steps must be one number per layer, got shape {tuple(steps.shape)}")
    examples = tokens - check_count("queries", queries, 0)
    if examples < 1:
        raise ValueError(f"queries must leave an example of {tokens} tokens, got {queries}")
    shown = labels[..., :examples, :]
    if (shown < 0).any() or ((shown.sum(-1) - 1).abs() > torch.finfo(labels.dtype).eps ** 0.5).any():
        raise ValueError("labels must be distributions over the classes: not negative, with sum 1")
    batch = torch.broadcast_shapes(*(array.shape[:-2] for array in (similarities, labels, classes)))
    features = labels.new_zeros(*batch, tokens, classes.shape[-1])
    found = [features]
    for step in steps.to(labels):
        attention = torch.softmax(features[..., :examples, :] @ classes.mT, -1)
        features = features - step / examples * (similarities[..., :examples] @ ((attention - shown) @ classes))
        found.append(features)
    return torch.stack(found)


def bayes_layer(noise: Tensor, prior: Tensor, examples: int) -> Tensor:
    """The preconditioner of the one layer that no model can beat: 4n((n + 1)Λ + ΛΩ⁻¹Λ)⁻¹.

    Two classes, x = y(μ + noise), noise ~ N(0, Λ), a mean μ ~ N(0, Ω) new in every prompt. With class vectors ½ and -½ a
    layer of similarities XAXᵀ and step 1 gives a query the log-odds xᵀA Σ y_i x_i / (2n), with this A those of Bayes' rule.

    Args:
        noise: Λ, symmetric positive definite, shape (..., d, d).
        prior: Ω, likewise.
        examples: n, the labeled examples of a prompt.

    Returns:
        A, symmetric, shape (..., d, d).

    Source: the chapter "Labels in context".
    """
    check_matrices(noise=noise, prior=prior)
    check_matrix_shape("prior", prior, noise.shape[-2:], "as the noise")
    check_broadcast(noise=noise, prior=prior)
    for name, value in (("noise", noise), ("prior", prior)):
        check_symmetric(name, value)
        if torch.linalg.cholesky_ex(value).info.any():
            raise ValueError(f"{name} must be positive definite, got an eigenvalue that is not positive")
    examples = check_count("examples", examples)
    inverse = (examples + 1) * noise + noise @ torch.linalg.solve(prior, noise)
    found = 4 * examples * torch.linalg.inv(inverse)
    return (found + found.mT) / 2


def own_label_accuracy(dim: int, examples: int, variance: float = 0.0) -> float:
    """How often one layer is right on labels that it was shown: F(√(d(1 + nτ²)/(n - 1))) of Student's t, d degrees.

    The layer steps from 0 with A = I. Without signal, τ² = 0, no label can be known, and all beyond ½ is leaked.

    Args:
        dim: the dimension d.
        examples: n, the labeled tokens among which the token is.
        variance: τ², of the mean's coordinates.

    Returns:
        The probability that the sign is right, from ½ to 1.

    Source: the chapter "Labels in context".
    """
    dim, examples, variance = check_count("dim", dim), check_count("examples", examples), _variance(variance)
    if examples == 1:
        return 1.0
    return float(stdtr(dim, math.sqrt(dim * (1 + examples * variance) / (examples - 1))))


def context_accuracy_bound(dim: int, examples: int, variance: float) -> float:
    """The best accuracy of any model on a label that is hidden: F(√(dnτ⁴/(1 + (n + 1)τ²))) of Student's t, d degrees.

    One layer with any A = aI, a > 0, attains it.

    Args:
        dim: the dimension d.
        examples: n, the labeled examples of a prompt.
        variance: τ², of the mean's coordinates.

    Returns:
        The probability that the sign is right, from ½ to 1.

    Source: the chapter "Labels in context".
    """
    dim, examples, variance = check_count("dim", dim), check_count("examples", examples), _variance(variance)
    if variance == 0:
        return 0.5
    return float(stdtr(dim, math.sqrt(dim * examples * variance / (1 / variance + examples + 1))))


def _variance(value: float) -> float:
    """A finite number, not negative."""
    check_number("variance", value, least=0)
    return float(value)
