"""Softmax and log-sum-exp with the axis spelled out, the Jacobian of softmax, and the smooth maximum.

Rows of a matrix are tokens, columns are classes (or keys): the "sequence" axis runs down a column, the "class" axis
along a row. No function here has a default axis, because the book's first question is which axis is meant.
"""

import torch
from torch import Tensor

from attnopt.checks import Axis, axis_dim, check_matrices, check_number, check_vectors


def softmax(logits: Tensor, axis: Axis) -> Tensor:
    """Exponentials of the logits, normalized to sum to 1 along one axis.

    Args:
        logits: real scores, shape (..., S, K): S tokens, K classes.
        axis: "sequence" makes each column sum to 1 (the σ_i of Actor, Gruber, Cyr), "class" each row (the softmax
            over keys of scaled dot-product attention).

    Returns:
        Softmax values, in the shape of the logits; they are positive unless they underflow to 0.

    Source: Actor, Gruber, Cyr (2025), after eq. (1).
    """
    dim = axis_dim(axis)
    check_matrices(logits=logits)
    return torch.softmax(logits, dim)


def logsumexp(logits: Tensor, axis: Axis) -> Tensor:
    """Logarithm of the sum of exponentials of the logits along one axis, computed in shifted form.

    Its error is a few units of rounding relative to the largest absolute logit or the result, whichever is larger. It can
    be large relative to a result near zero, if one logit is close to zero and dominates.

    Args:
        logits: real scores, shape (..., S, K).
        axis: "sequence" sums down each column, "class" along each row.

    Returns:
        One number per slice, shape (..., K) for "sequence", (..., S) for "class".

    Source: Blanchard, Higham, Higham (2021), for the shifted form and its analysis.
    """
    dim = axis_dim(axis)
    check_matrices(logits=logits)
    return torch.logsumexp(logits, dim)


def softmax_jacobian(probabilities: Tensor) -> Tensor:
    """Jacobian of the softmax of a vector, in terms of the softmax s itself: diag(s) - s sᵀ.

    It is also the Hessian of log-sum-exp, and the covariance of a one-hot draw from s.

    Args:
        probabilities: the softmax s, shape (..., n), n ≥ 1.

    Returns:
        The symmetric positive semidefinite Jacobian, shape (..., n, n).

    Source: Blanchard, Higham, Higham (2021), section 2.
    """
    check_vectors(probabilities=probabilities)
    off = (probabilities.sum(-1) - 1).abs().max().item()
    if (probabilities < 0).any() or off > torch.finfo(probabilities.dtype).eps ** 0.5:
        raise ValueError(
            f"probabilities must not be negative and sum to 1, got {probabilities.min():.3g} and a sum off by {off:.3g}"
        )
    return torch.diag_embed(probabilities) - probabilities.unsqueeze(-1) * probabilities.unsqueeze(-2)


def smooth_maximum(scores: Tensor, temperature: float) -> Tensor:
    """Smoothed maximum of the scores, T · LSE(scores / T): at least the maximum, and at most T log n more.

    Args:
        scores: real scores, shape (..., n), n ≥ 1.
        temperature: T, in the unit of the scores; positive.

    Returns:
        The smoothed maximum, shape (...).
    """
    check_number("temperature", temperature)
    check_vectors(scores=scores)
    return temperature * torch.logsumexp(scores / temperature, dim=-1)
