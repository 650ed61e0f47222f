"""Linear regressions as sequences of points and labels, and the answers of known algorithms to them."""

import torch
from torch import Tensor

from attnopt.checks import as_column, check_broadcast, check_count, check_matrices, check_number


def as_tokens(covariates: Tensor, labels: Tensor) -> Tensor:
    """The tokens x₁, y₁, x₂, y₂, …, x_n: n points, and the labels of all except the last.

    Args:
        covariates: the points x_i, shape (..., n, d).
        labels: the labels y_i, shape (..., n); the last is left out.

    Returns:
        The tokens (x_i, 0) and (0, y_i) in turn, shape (..., 2n - 1, d + 1).

    Source: Garg, Tsipras, Liang, Valiant (2022), section 2.
    """
    _check_examples(covariates, labels)
    covariates, labels = covariates.expand(*labels.shape, -1), labels.expand(covariates.shape[:-1])
    points = torch.cat([covariates, torch.zeros_like(labels)[..., None]], -1)
    answers = torch.cat([torch.zeros_like(covariates), labels[..., None]], -1)
    return torch.stack([points, answers], -2).flatten(-3, -2)[..., :-1, :]


def krylov_answers(covariates: Tensor, labels: Tensor, query: Tensor, count: int) -> Tensor:
    """The Krylov answers ⟨x, Gʲ b⟩, j = 0, 1, …, at a query x, where G = XᵀX / n and b = Xᵀy / n.

    After k steps of gradient descent from 0 on the least-squares problem, with any step sizes and momentum, the answer is a
    linear combination of the first k of these, with coefficients that depend only on the step sizes and the momentum.

    Args:
        covariates: X, shape (..., n, d).
        labels: y, shape (..., n).
        query: x, shape (..., d).
        count: number of answers.

    Returns:
        The answers, shape (..., count).

    Source: the chapter "Does a real transformer take gradient steps?".
    """
    _check_examples(covariates, labels, query=query)
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
        steps: number of steps.

    Returns:
        The answers of M_0 … M_steps, shape (..., steps + 1).

    Source: Fu, Chen, Jia, Sharan (2024), section 3.
    """
    _check_examples(covariates, labels, query=query)
    second, target = covariates.mT @ covariates, covariates.mT @ labels[..., None]
    inverse = second / torch.linalg.matrix_norm(second, 2)[..., None, None].square()
    found = []
    for step in range(check_count("steps", steps, 0) + 1):
        if step:
            inverse = 2 * inverse - inverse @ second @ inverse
        found.append((query[..., None, :] @ inverse @ target)[..., 0, 0])
    return torch.stack(found, -1)


def ridge_answers(covariates: Tensor, labels: Tensor, query: Tensor, penalty: float) -> Tensor:
    """The answers ⟨x, (XᵀX + λI)⁻¹ Xᵀy⟩ of ridge regression; with λ = 0, of the minimum-norm least-squares fit.

    Args:
        covariates: X, shape (..., n, d).
        labels: y, shape (..., n).
        query: x, shape (..., d).
        penalty: λ, at least 0.

    Returns:
        The answers, shape (...).

    Source: Hoerl and Kennard (1970).
    """
    _check_examples(covariates, labels, query=query)
    check_number("penalty", penalty, least=0)
    left, values, right = torch.linalg.svd(covariates, full_matrices=False)
    along, toward = (left.mT @ labels[..., None])[..., 0], (right @ query[..., None])[..., 0]
    kept = values > torch.finfo(values.dtype).eps * max(covariates.shape[-2:]) * values[..., :1]
    return (torch.where(kept, values / (values.square() + penalty), 0) * along * toward).sum(-1)


def _check_examples(covariates: Tensor, labels: Tensor, **query: Tensor) -> None:
    """Require one label per point, and a query, if one is given, of the points' dimension."""
    vectors = {"labels": labels} | query
    check_matrices(covariates=covariates, **{name: as_column(value) for name, value in vectors.items()})
    n, dim = covariates.shape[-2:]
    for name, size in ({"labels": n} | dict.fromkeys(query, dim)).items():
        if vectors[name].shape[-1] != size:
            raise ValueError(f"{name} must have shape (..., {size}) to match covariates, got {tuple(vectors[name].shape)}")
    check_broadcast({"covariates": 2} | dict.fromkeys(vectors, 1), covariates=covariates, **vectors)
