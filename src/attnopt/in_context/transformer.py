"""The linear transformer on prompts, token by token, and its loss computed from only the prompt's Gram matrix."""

import torch
from torch import Tensor

from attnopt.checks import as_column, check_broadcast, check_matrices, check_matrix_shape


def linear_transformer(prompts: Tensor, P: Tensor, Q: Tensor) -> Tensor:
    """All states of a linear transformer, Z ← Z + (1/n) P Z M Zᵀ Q Z, where the mask M hides the query.

    In this formula, as in the paper, the columns of Z are the tokens; the arguments and the result have tokens as rows.

    Args:
        prompts: Z₀, shape (..., n + 1, d + 1), rows are tokens and the last row is the query.
        P: value matrices of the k layers, shape (..., k, d + 1, d + 1), as in the paper.
        Q: products of key and query matrices, shape (..., k, d + 1, d + 1).

    Returns:
        Z₀ … Z_k, shape (k + 1, ..., n + 1, d + 1).

    Source: Ahn, Cheng, Daneshmand, Sra (2023), (3), (4).
    """
    check_matrices(prompts=prompts, P=P, Q=Q)
    if prompts.shape[-2] < 2:
        raise ValueError(f"prompts must have a labeled example and a query, got shape {tuple(prompts.shape)}")
    width = prompts.shape[-1]
    _check_layers(width, P=P, Q=Q)
    check_broadcast({"prompts": 2, "P": 3, "Q": 3}, prompts=prompts, P=P, Q=Q)
    states = [prompts]
    for i in range(P.shape[-3]):
        context = states[-1][..., :-1, :]
        second_moment = context.mT @ context / context.shape[-2]
        # the paper's equation transposed, from the right, so that no (n + 1) × (n + 1) matrix is formed
        update = Q[..., i, :, :].mT @ second_moment @ P[..., i, :, :].mT
        states.append(states[-1] + states[-1] @ update)
    return torch.stack(torch.broadcast_tensors(*states))


def in_context_loss(prompts: Tensor, targets: Tensor, P: Tensor, Q: Tensor) -> Tensor:
    """Mean squared error over prompts; the prediction is minus the label entry of the query in the last state Z_k.

    Args:
        prompts: Z₀, shape (..., n_prompts, n + 1, d + 1).
        targets: labels ⟨w⋆, x⁽ⁿ⁺¹⁾⟩ of the queries, shape (..., n_prompts).
        P: value matrices, shape (..., k, d + 1, d + 1).
        Q: products of key and query matrices, shape (..., k, d + 1, d + 1).

    Returns:
        The sampled loss, shape (...).

    Source: Ahn, Cheng, Daneshmand, Sra (2023), (5).
    """
    check_matrices(prompts=prompts, targets=as_column(targets), P=P, Q=Q)
    if prompts.ndim < 3:
        raise ValueError(f"prompts must be several, (..., n_prompts, n + 1, d + 1), got shape {tuple(prompts.shape)}")
    _check_layers(prompts.shape[-1], P=P, Q=Q)
    if targets.shape[-1] != prompts.shape[-3]:
        raise ValueError(f"targets must have one number a prompt, {prompts.shape[-3]}, got shape {tuple(targets.shape)}")
    check_broadcast({"prompts": 3, "targets": 1, "P": 3, "Q": 3}, prompts=prompts, targets=targets, P=P, Q=Q)
    final = linear_transformer(prompts, P.unsqueeze(-4), Q.unsqueeze(-4))[-1]
    return (final[..., -1, -1] + targets).square().mean(-1)


def prompt_losses(grams: Tensor, A: Tensor, B: Tensor | None = None) -> Tensor:
    """For each prompt, the squared error of the layers (9) or (13) of Ahn et al., averaged over w⋆ and the query.

    In whitened coordinates, the prediction error is w⋆ᵀ T_k x⁽ⁿ⁺¹⁾ with standard normal w⋆ and x⁽ⁿ⁺¹⁾, where K_0 = T_0 = I,

        T_{i+1} = T_i (I + G K_iᵀ A_i K_i),   K_{i+1} = (I + B_i K_i G K_iᵀ A_i) K_i,

    so its mean square over both is ‖T_k‖²_F. Prompts enter only through d × d matrices.

    Args:
        grams: whitened Gram matrices G, shape (..., d, d).
        A: whitened A_i, that is Σ^(1/2) A_i Σ^(1/2), of the k layers, shape (..., k, d, d).
        B: whitened B_i, that is Σ^(-1/2) B_i Σ^(1/2), shape (..., k, d, d); zero unless given, as in (9).

    Returns:
        ‖T_k‖²_F; its leading dimensions are those of ``grams``, broadcast with those of ``A`` (without the layers). Its mean
        over prompts is the in-context loss.

    Source: the chapters "Layers are steps" and "Beyond gradient descent"; Ahn, Cheng, Daneshmand, Sra (2023), Lemma 9.
    """
    layers = {"A": A} if B is None else {"A": A, "B": B}
    check_matrices(grams=grams, **layers)
    check_matrix_shape("grams", grams, (grams.shape[-1],) * 2, "(they must be square)")
    _check_layers(grams.shape[-1], **layers)
    check_broadcast({"grams": 2, "A": 3, "B": 3}, grams=grams, **layers)
    identity = torch.eye(grams.shape[-1], dtype=grams.dtype, device=grams.device)
    error = carrier = identity
    for i in range(A.shape[-3]):  # no product is taken with an identity
        seen = A[..., i, :, :] if carrier is identity else carrier.mT @ A[..., i, :, :] @ carrier
        error = error + (grams if error is identity else error @ grams) @ seen
        if B is not None and i + 1 < A.shape[-3]:  # the last B moves covariates that no layer reads
            carrier = carrier + B[..., i, :, :] @ (grams if carrier is identity else carrier @ grams) @ seen
    return error.square().sum((-2, -1))


def _check_layers(width: int, **matrices: Tensor) -> None:
    """Require (..., k, width, width), with one k for all."""
    depths = {name: value.shape[-3] if value.ndim > 2 else 0 for name, value in matrices.items()}
    for name, value in matrices.items():
        if value.ndim < 3:
            raise ValueError(f"{name} must have a dimension of layers, (..., k, {width}, {width}), got {tuple(value.shape)}")
        check_matrix_shape(name, value, (width, width), "to match the prompts")
    if len(set(depths.values())) > 1:
        raise ValueError(f"{' and '.join(depths)} must have as many layers, got {depths}")
