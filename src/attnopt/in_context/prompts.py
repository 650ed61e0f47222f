"""Random linear regressions as prompts, and their whitened Gram matrices."""

import torch
from torch import Tensor

from attnopt.checks import check_count, check_covariance, check_dtype, check_generator, check_matrices


def sample_prompts(
    n_prompts: int,
    covariance: Tensor,
    n_context: int,
    generator: torch.Generator,
    weight_covariance: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Random prompts (x⁽¹⁾, y⁽¹⁾), …, (x⁽ⁿ⁾, y⁽ⁿ⁾), (x⁽ⁿ⁺¹⁾, 0) with labels y = ⟨w⋆, x⟩ and a new w⋆ for each prompt.

    Args:
        n_prompts: number of prompts.
        covariance: Σ of the covariates x ~ N(0, Σ), shape (d, d), positive definite.
        n_context: n, the number of labeled examples in each prompt.
        generator: random generator on the device of ``covariance``.
        weight_covariance: covariance of w⋆, shape (d, d), positive definite; the identity unless given.

    Returns:
        Prompts, shape (n_prompts, n + 1, d + 1), rows are tokens and the last row is the query.
        Targets ⟨w⋆, x⁽ⁿ⁺¹⁾⟩, shape (n_prompts,).

    Source: Ahn, Cheng, Daneshmand, Sra (2023), (1), transposed, so that tokens are rows.
    """
    n_prompts, n_context = check_count("n_prompts", n_prompts), check_count("n_context", n_context)
    check_generator("generator", generator)
    check_covariance("covariance", covariance)
    if covariance.ndim != 2:
        raise ValueError(f"covariance must be one matrix, got shape {tuple(covariance.shape)}")
    dim = len(covariance)
    like = {"dtype": covariance.dtype, "device": covariance.device, "generator": generator}
    weights = torch.randn(n_prompts, dim, 1, **like)
    if weight_covariance is not None:
        check_covariance("weight_covariance", weight_covariance)
        check_matrices(covariance=covariance, weight_covariance=weight_covariance)
        if weight_covariance.shape != covariance.shape:
            raise ValueError(f"weight_covariance must have the shape of covariance, got {tuple(weight_covariance.shape)}")
        weights = torch.linalg.cholesky(weight_covariance) @ weights
    covariates = torch.randn(n_prompts, n_context + 1, dim, **like) @ torch.linalg.cholesky(covariance).mT
    labels = covariates @ weights
    targets = labels[:, -1, 0].clone()
    labels[:, -1] = 0
    return torch.cat([covariates, labels], -1), targets


def sample_grams(
    n_prompts: int, dim: int, n_context: int, generator: torch.Generator, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Whitened Gram matrices G = Σ^(-1/2) (XXᵀ/n) Σ^(-1/2) of random prompts; their distribution does not depend on Σ.

    Args:
        n_prompts: number of prompts.
        dim: the dimension d.
        n_context: n, the number of labeled examples in each prompt.
        generator: random generator; the result is on its device.
        dtype: dtype of the result.

    Returns:
        G, shape (n_prompts, d, d), Wishart matrices with n degrees of freedom, divided by n.

    Source: the chapter "Layers are steps".
    """
    check_generator("generator", generator)
    check_dtype("dtype", dtype)
    shape = check_count("n_prompts", n_prompts), check_count("n_context", n_context), check_count("dim", dim)
    covariates = torch.randn(shape, dtype=dtype, device=generator.device, generator=generator)
    return covariates.mT @ covariates / n_context
