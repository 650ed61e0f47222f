"""Attention normalized along both axes: the doubly stochastic matrix for which Corollary 2 of Part I's paper is true."""

import torch
from torch import Tensor

from attnopt.checks import check_matrices, check_symmetric

MOST_STEPS = 100


def sinkhorn_attention(scores: Tensor) -> Tensor:
    """The doubly stochastic matrix D exp(A) D of a symmetric score matrix A, with entrywise exp and a positive diagonal D.

    Args:
        scores: A, shape (..., S, S), symmetric.

    Returns:
        A symmetric matrix whose rows and columns sum to 1, shape (..., S, S).

    Raises:
        ValueError: if ``scores`` have so large a range that the row sums cannot be brought to 1 within the square root of
            the dtype's epsilon.

    Source: Knight, Ruiz (2013) for Newton's method; Sander, Ablin, Blondel, Peyré (2022) for the use in attention.
    """
    log_scaling = _log_scaling(scores)
    # One more Newton step from the solution changes no value and carries the derivative (implicit function theorem).
    row_sums = _scaled(scores, log_scaling).sum(-1)
    step = torch.linalg.solve_ex(_newton_matrix(scores.detach(), log_scaling), 1 - row_sums).result
    attention = _scaled(scores, log_scaling + step)
    _check_row_sums(attention.sum(-1), scores)
    return attention


def sinkhorn_value(scores: Tensor) -> Tensor:
    """The largest value of ⟨P, A⟩ + H(P) over doubly stochastic matrices P with entropy H(P).

    `sinkhorn_attention` attains it, and is its gradient in A, as softmax attention is the gradient of ⟨1, LSE(A)⟩.

    Args:
        scores: A, shape (..., S, S), symmetric.

    Returns:
        The value in nats, shape (...).

    Raises:
        ValueError: as in `sinkhorn_attention`.
    """
    # The dual: the least value over f of Σ exp(A + f + fᵀ) - S - 2 Σ f. At the minimizer its derivative in f vanishes,
    # so f may be held fixed when the value is differentiated.
    log_scaling = _log_scaling(scores)
    return _scaled(scores, log_scaling).sum((-2, -1)) - scores.shape[-1] - 2 * log_scaling.sum(-1)


def _scaled(scores: Tensor, log_scaling: Tensor) -> Tensor:
    """exp(A + f + fᵀ), shape (..., S, S)."""
    return torch.exp(scores + log_scaling.unsqueeze(-1) + log_scaling.unsqueeze(-2))


def _newton_matrix(scores: Tensor, log_scaling: Tensor) -> Tensor:
    """Derivative of the row sums of exp(A + f + fᵀ) in f."""
    balanced = _scaled(scores, log_scaling)
    return torch.diag_embed(balanced.sum(-1)) + balanced


def _check_row_sums(row_sums: Tensor, scores: Tensor) -> None:
    """Reject scores whose scaling the dtype cannot resolve."""
    if not ((row_sums - 1).abs() <= torch.finfo(scores.dtype).eps ** 0.5).all():
        spread = (scores.amax() - scores.amin()).item()
        raise ValueError(f"scores must be less spread to be balanced in {scores.dtype}, got a range of {spread:.3g}")


def _log_scaling(scores: Tensor) -> Tensor:
    """The logarithm f of the scaling D, shape (..., S), detached: the minimizer of the convex ½ Σ exp(A + f + fᵀ) - Σ f.

    Newton's method, damped as Sun and Tran-Dinh (2019) prove to converge from anywhere for sums of exponentials.
    """
    check_matrices(scores=scores)
    check_symmetric("scores", scores)
    scores = scores.detach()
    log_scaling = -0.5 * torch.logsumexp(scores, -1)  # with it every exponential below is at most 1
    precision = torch.finfo(scores.dtype)
    for _ in range(MOST_STEPS):
        row_sums = _scaled(scores, log_scaling).sum(-1)
        if ((row_sums - 1).abs() <= 4 * precision.eps).all():
            break
        newton = torch.linalg.solve_ex(_newton_matrix(scores, log_scaling), 1 - row_sums).result
        size = (2 * newton.abs().amax(-1, keepdim=True)).clamp_min(precision.tiny)
        log_scaling = log_scaling + newton * torch.log1p(size) / size
    _check_row_sums(row_sums, scores)
    return log_scaling
