"""Random linear regressions as sequences of points and labels, and what known algorithms answer to them."""

import torch
from torch import Tensor

from attnopt.checks import check_count, check_matrices


def as_tokens(covariates: Tensor, labels: Tensor) -> Tensor:
    """The tokens x₁, y₁, x₂, y₂, …, x_n of n points and the labels of all but the last.

    Args:
        covariates: shape (..., n, d).
        labels: shape (..., n); the last is left out.

    Returns:
        Shape (..., 2n - 1, d + 1): (x_i, 0) and (0, y_i) in turn.

    Source: Garg, Tsipras, Liang, Valiant (2022), section 2.
    """
    check_matrices(covariates=covariates, labels=labels.unsqueeze(-1))
    if labels.shape != covariates.shape[:-1]:
        raise ValueError(f"labels must have shape {tuple(covariates.shape[:-1])}, got {tuple(labels.shape)}")
    points = torch.cat([covariates, torch.zeros_like(labels)[..., None]], -1)
    answers = torch.cat([torch.zeros_like(covariates), labels[..., None]], -1)
    return torch.stack([points, answers], -2).flatten(-3, -2)[..., :-1, :]


def krylov(covariates: Tensor, labels: Tensor, query: Tensor, count: int) -> Tensor:
    """The answers ⟨x, Gʲ b⟩, j = 0, 1, …, with G = XᵀX / n and b = Xᵀy / n, at a query x.

    Every answer of k steps of gradient descent on the least squares problem from 0, with momentum and any step sizes, is a
    combination of the first k, with coefficients that the steps alone determine.

    Args:
        covariates: X, shape (..., n, d).
        labels: y, shape (..., n).
        query: x, shape (..., d).
        count: how many.

    Returns:
        Shape (..., count).

    Source: the chapter "Does a real transformer take gradient steps?".
    """
    check_matrices(covariates=covariates, labels=labels.unsqueeze(-1), query=query.unsqueeze(-1))
    n = covariates.shape[-2]
    power = covariates.mT @ labels[..., None] / n
    found = []
    for _ in range(check_count("count", count)):
        found.append((query[..., None, :] @ power)[..., 0, 0])
        power = covariates.mT @ (covariates @ power) / n
    return torch.stack(found, -1)


def newton_answers(covariates: Tensor, labels: Tensor, query: Tensor, steps: int) -> Tensor:
    """The answers ⟨x, M_k Xᵀy⟩ of Newton's iteration M ← 2M - M S M for the inverse of S = XᵀX, from M₀ = S / ‖S‖².

    Args:
        covariates: X, shape (..., n, d).
        labels: y, shape (..., n).
        query: x, shape (..., d).
        steps: how many.

    Returns:
        Those of M_0 … M_steps, shape (..., steps + 1).

    Source: Fu, Chen, Jia, Sharan (2024), section 3.
    """
    check_matrices(covariates=covariates, labels=labels.unsqueeze(-1), query=query.unsqueeze(-1))
    second, target = covariates.mT @ covariates, covariates.mT @ labels[..., None]
    inverse = second / torch.linalg.matrix_norm(second, 2)[..., None, None].square()
    found = []
    for step in range(check_count("steps", steps, 0) + 1):
        if step:
            inverse = 2 * inverse - inverse @ second @ inverse
        found.append((query[..., None, :] @ inverse @ target)[..., 0, 0])
    return torch.stack(found, -1)


def ridge_answers(covariates: Tensor, labels: Tensor, query: Tensor, penalties: Tensor) -> Tensor:
    """The answers ⟨x, (XᵀX + λI)⁻¹ Xᵀy⟩ of ridge regression; the limit λ → 0, of the least norm, where λ = 0.

    Args:
        covariates: X, shape (..., n, d).
        labels: y, shape (..., n).
        query: x, shape (..., d).
        penalties: λ, shape (m,), none negative.

    Returns:
        Shape (..., m).
    """
    check_matrices(covariates=covariates, labels=labels.unsqueeze(-1), query=query.unsqueeze(-1))
    if (penalties < 0).any():
        raise ValueError(f"penalties must not be negative, got {penalties.min().item()}")
    left, values, right = torch.linalg.svd(covariates, full_matrices=False)
    along, toward = (left.mT @ labels[..., None])[..., 0], (right @ query[..., None])[..., 0]
    values = values[..., None, :]
    kept = values > torch.finfo(values.dtype).eps * max(covariates.shape[-2:]) * values[..., :1]
    share = torch.where(kept, values / (values.square() + penalties[:, None]), 0)
    return (share * (along * toward)[..., None, :]).sum(-1)
