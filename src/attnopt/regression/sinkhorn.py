"""Attention normalised along both axes: the doubly stochastic matrix that makes Corollary 2 true."""

import torch
from torch import Tensor

from attnopt.checks import check_matrices, check_symmetric

MOST_ITERATIONS = 1000


def sinkhorn_attention(scores: Tensor) -> Tensor:
    """The symmetric doubly stochastic scaling D exp(A) D of a symmetric score matrix A.

    Iterates the symmetric fixed point d ← √(d / (K d)) in logarithms, the geometric mean of successive Sinkhorn
    scalings, which converges without oscillating.

    Args:
        scores: A, shape (..., S, S), symmetric.

    Returns:
        A symmetric matrix whose rows and columns sum to 1, shape (..., S, S).

    Raises:
        TypeError: if ``scores`` is not a real floating-point tensor.
        ValueError: if ``scores`` is not finite or not symmetric, or the row sums have not converged to the square
            root of the dtype's epsilon within 1000 iterations.

    Source: Knight, Ruiz, Uçar (2014) for the symmetric iteration; Sander, Ablin, Blondel, Peyré (2022) for its use in
        attention.
    """
    log_scaling = _log_scaling(scores)
    return torch.exp(scores + log_scaling.unsqueeze(-1) + log_scaling.unsqueeze(-2))


def sinkhorn_value(scores: Tensor) -> Tensor:
    """The largest value of ⟨P, A⟩ + H(P) over doubly stochastic P, attained by `sinkhorn_attention`.

    It is to doubly stochastic attention what ⟨1, LSE(A)⟩ is to softmax attention: its gradient in A.

    Args:
        scores: A, shape (..., S, S), symmetric.

    Returns:
        The value in nats, shape (...).

    Raises:
        TypeError: as `sinkhorn_attention`.
        ValueError: as `sinkhorn_attention`.
    """
    # With P = exp(A + f + fᵀ): ⟨P, A⟩ - ⟨P, log P⟩ = -⟨P, f + fᵀ⟩ = -2 Σ f.
    return -2 * _log_scaling(scores).sum(-1)


def _log_scaling(scores: Tensor) -> Tensor:
    """The logarithm f of the scaling D, shape (..., S)."""
    check_matrices(scores=scores)
    check_symmetric("scores", scores)
    log_scaling = -0.5 * torch.logsumexp(scores, -1)
    epsilon = torch.finfo(scores.dtype).eps
    for _ in range(MOST_ITERATIONS):
        log_row_sums = log_scaling + torch.logsumexp(scores + log_scaling.unsqueeze(-2), -1)
        if (log_row_sums.abs() < 4 * epsilon).all():
            break
        log_scaling = log_scaling - 0.5 * log_row_sums
    if (log_row_sums.abs() > epsilon**0.5).any():
        worst = log_row_sums.abs().max().item()
        raise ValueError(f"scores are too spread for {MOST_ITERATIONS} iterations: a row sum is still off by {worst:.2g}")
    return log_scaling
