"""Labels in context: multinomial regression on a prompt's examples, layer by layer, and how well labels can be predicted.

The exact results are for two classes: labels y = ±1, points x = y(μ + noise) with noise ~ N(0, I), and a mean
μ ~ N(0, τ²I) that is new in every prompt. If τ² = 0, the labels are coin flips.
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
    """Features Z of all tokens after each layer Z ← Z - (h/n) 𝒦M(σ(Zθᵀ) - C)θ, from Z = 0.

    The mask M hides the queries. With 𝒦 = XAXᵀ, token j has the features Wᵀx_j, and a layer is a step of gradient descent
    in W, preconditioned by A, on the cross-entropy of the examples. With a kernel for 𝒦, it is a step in the kernel's space
    of functions.

    Args:
        similarities: 𝒦, the similarity of every token (row) to every token (column), shape (..., m, m).
        labels: C, a distribution over the classes for every token, shape (..., m, K); those of queries are not read.
        classes: θ, a vector for each class, shape (..., K, F).
        steps: step size h of each layer, shape (layers,).
        queries: number of queries, the last tokens; the other n are the examples. With 0, and n times the identity for 𝒦, a
            layer is Part I's block.

    Returns:
        Z before the first layer and after each layer, shape (layers + 1, ..., m, F).

    Source: the chapter "Labels in context"; Wang, Convertino, Cheng, Henao, Carin (2025), for kernels.
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
    """The preconditioner A of a single layer that no model can beat, 4n((n + 1)Λ + ΛΩ⁻¹Λ)⁻¹.

    The task has two classes, y = ±1 and x = y(μ + noise), with noise ~ N(0, Λ) and a mean μ ~ N(0, Ω) that is new in every
    prompt. With class vectors ½ and -½, a layer of similarities XAXᵀ and step size 1 gives a query x the log-odds
    xᵀA Σ y_i x_i / (2n). With this A, they are those of Bayes' rule.

    Args:
        noise: Λ, symmetric positive definite, shape (..., d, d).
        prior: Ω, symmetric positive definite, shape (..., d, d).
        examples: n, the number of labeled examples in a prompt.

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
    """The accuracy of one layer on labels that it was shown, F(√(d(1 + nτ²)/(n - 1))).

    F is the distribution function of Student's t with d degrees of freedom. The task is that of `bayes_layer` with Λ = I
    and Ω = τ²I, and the layer has A = I. If τ² = 0, no label can be predicted, and any accuracy above ½ is leakage.

    Args:
        dim: the dimension d.
        examples: n, the number of labeled tokens, including the token itself.
        variance: τ², the variance of the mean's coordinates.

    Returns:
        The probability that the predicted sign is right, from ½ to 1.

    Source: the chapter "Labels in context".
    """
    dim, examples, variance = check_count("dim", dim), check_count("examples", examples), _variance(variance)
    if examples == 1:
        return 1.0
    return float(stdtr(dim, math.sqrt(dim * (1 + examples * variance) / (examples - 1))))


def context_accuracy_bound(dim: int, examples: int, variance: float) -> float:
    """The best accuracy of any model on a masked label, F(√(dnτ⁴/(1 + (n + 1)τ²))).

    F and the task are those of `own_label_accuracy`. One layer with any A = aI, a > 0, attains it.

    Args:
        dim: the dimension d.
        examples: n, the number of labeled examples in a prompt.
        variance: τ², the variance of the mean's coordinates.

    Returns:
        The probability that the predicted sign is right, from ½ to 1.

    Source: the chapter "Labels in context".
    """
    dim, examples, variance = check_count("dim", dim), check_count("examples", examples), _variance(variance)
    if variance == 0:
        return 0.5
    return float(stdtr(dim, math.sqrt(dim * examples * variance / (1 / variance + examples + 1))))


def _variance(value: float) -> float:
    """Check that a number is finite and not negative."""
    check_number("variance", value, least=0)
    return float(value)
