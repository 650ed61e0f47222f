"""One layer: the exact in-context loss and its minimizer."""

import torch
from torch import Tensor

from attnopt.checks import as_column, check_broadcast, check_count, check_covariance, check_matrices, check_matrix_shape


def one_layer_optimum(covariance: Tensor, n_context: int) -> Tensor:
    """The optimal preconditioner A of one layer, -n((n + 1)Σ + tr(Σ)I)⁻¹, for weights w⋆ ~ N(0, I).

    Args:
        covariance: Σ, shape (..., d, d), positive definite.
        n_context: n, the number of labeled examples in a prompt.

    Returns:
        A, negative definite, shape (..., d, d); the best A in `attention_loss` has a row of zeros below it.

    Source: Ahn, Cheng, Daneshmand, Sra (2023), Theorem 1 and (8).
    """
    n_context = check_count("n_context", n_context)
    check_covariance("covariance", covariance)
    identity = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    inverse = torch.linalg.inv((1 + 1 / n_context) * covariance + _trace(covariance) / n_context * identity)
    return -(inverse + inverse.mT) / 2


def one_layer_loss(
    preconditioner: Tensor, covariance: Tensor, n_context: int, weight_covariance: Tensor | None = None
) -> Tensor:
    """The exact in-context loss of one layer that passes on only labels and compares only covariates.

    In `attention_loss`, b is then e_{d+1}, and the last row of A is 0. With Ω the covariance of w⋆, and H the second-moment
    matrix of the examples' covariates, the loss is tr ΣΩ + 2 tr(ΣΩΣA) + tr(AΣAᵀ E[HΩH]), where
    E[HΩH] = ((n + 1)ΣΩΣ + tr(ΩΣ)Σ) / n.

    Args:
        preconditioner: A, any matrix of shape (..., d, d); negative definite for gradient descent.
        covariance: Σ of the covariates, shape (..., d, d), positive definite.
        n_context: n, the number of labeled examples in a prompt.
        weight_covariance: Ω, shape (..., d, d), positive definite; the identity unless given.

    Returns:
        The loss, shape (...).

    Source: the chapter "One layer, one step"; Ahn, Cheng, Daneshmand, Sra (2023), (15).
    """
    n_context = check_count("n_context", n_context)
    check_covariance("covariance", covariance)
    dim = covariance.shape[-1]
    if weight_covariance is None:
        weight_covariance = torch.eye(dim, dtype=covariance.dtype, device=covariance.device)
    check_covariance("weight_covariance", weight_covariance)
    arguments = {"covariance": covariance, "preconditioner": preconditioner, "weight_covariance": weight_covariance}
    check_matrices(**arguments)
    for name, value in arguments.items():
        check_matrix_shape(name, value, (dim, dim), "to match covariance")
    check_broadcast(**arguments)
    return _one_layer_loss(preconditioner, covariance, n_context, weight_covariance)


def _one_layer_loss(preconditioner: Tensor, covariance: Tensor, n_context: int, weight_covariance: Tensor) -> Tensor:
    """`one_layer_loss` without checks; the trace of a product is computed as a sum, without the product."""
    both = covariance @ weight_covariance
    outer = both @ covariance
    second = ((n_context + 1) * outer + _trace(both) * covariance) / n_context
    quadratic = (preconditioner @ covariance) * (preconditioner.mT @ second).mT
    return _trace(both)[..., 0, 0] + (2 * outer * preconditioner + quadratic).sum((-2, -1))


def attention_loss(b: Tensor, A: Tensor, covariance: Tensor, n_context: int) -> Tensor:
    """The exact in-context loss of one layer as a function of b and A, the only parameters that affect it, for w⋆ ~ N(0, I).

    Args:
        b: last row of P, shape (..., d + 1).
        A: first d columns of Q, shape (..., d + 1, d).
        covariance: Σ of the covariates, shape (d, d), positive definite.
        n_context: n, the number of labeled examples in a prompt.

    Returns:
        E[((bᵀĈA + w⋆ᵀ)x)²], shape (...), a polynomial of degree 4 in the parameters; x is the query, and
        Ĉ = (1/n) Σ z_i z_iᵀ the second-moment matrix of the examples z_i = (x_i, y_i).

    Source: the chapter "One layer, one step"; Ahn, Cheng, Daneshmand, Sra (2023), (15).
    """
    n_context = check_count("n_context", n_context)
    check_covariance("covariance", covariance)
    if covariance.ndim != 2:
        raise ValueError(f"covariance must be one matrix, got shape {tuple(covariance.shape)}")
    column = as_column(b)
    check_matrices(covariance=covariance, b=column, A=A)
    dim = covariance.shape[-1]
    check_matrix_shape("b", column, (dim + 1, 1), "(as a column) to match covariance")
    check_matrix_shape("A", A, (dim + 1, dim), "to match covariance")
    check_broadcast({"b": 1, "A": 2}, b=b, A=A)
    row, last, upper, lower = b[..., :-1, None], b[..., -1:, None], A[..., :-1, :], A[..., -1:, :].mT
    # the error is xᵀ(even + odd): even = A₁ᵀHb₁ + βα w⋆ᵀHw⋆ is even in w⋆, odd = (βA₁ᵀ + αb₁ᵀ)Hw⋆ + w⋆ is odd
    identity = torch.eye(dim, dtype=covariance.dtype, device=covariance.device)
    odd = _one_layer_loss(last * upper + row @ lower.mT, covariance, n_context, identity)
    trace, squared = _trace(covariance), covariance @ covariance
    cross = trace * covariance + 2 / n_context * squared  # E[tr(H) H]
    fourth = (1 + 2 / n_context) * trace**2 + (2 + 4 / n_context) * _trace(squared)
    scale, pulled = last * lower, upper.mT @ (covariance @ row)  # βα, A₁ᵀΣb₁
    spread = ((upper @ covariance) * (upper.mT @ covariance).mT).sum((-2, -1))  # tr(ΣA₁ᵀΣA₁)
    products = (
        (n_context + 1) / n_context * pulled * (covariance @ pulled)
        + row * (covariance @ row) * spread[..., None, None] / n_context
        + (covariance @ scale) * (2 * upper.mT @ (cross @ row) + fourth * scale)
    )
    return odd + products.sum((-2, -1))


def _trace(matrix: Tensor) -> Tensor:
    """Trace, kept as a 1 × 1 matrix."""
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
