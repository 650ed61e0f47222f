"""Plain layers at A_i = a_i Σ⁻¹: residual polynomials, exact loss, and optimal step sizes."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import scipy.linalg
import torch
from numpy.polynomial import Polynomial
from torch import Tensor

from attnopt.checks import as_numbers, check_count, check_number
from attnopt.in_context.wishart import check_degree, wishart_quadrature, wishart_recurrence


def residual_polynomial(steps: Tensor | Sequence[float]) -> Polynomial:
    """The residual polynomial r(λ) = Π (1 + a_i λ) of k layers with step sizes a_i.

    The layers multiply the error by r(λ) in an eigendirection of the whitened Gram matrix with eigenvalue λ.

    Args:
        steps: the a_i in A_i = a_i Σ⁻¹ (negative for gradient descent), shape (k,).

    Returns:
        The polynomial, a NumPy `Polynomial` of degree k in λ with r(0) = 1.

    Source: the chapter "Optimal step sizes".
    """
    steps = as_numbers("steps", steps)
    if steps.ndim != 1:
        raise ValueError(f"steps must have shape (k,), got {tuple(steps.shape)}")
    polynomial = Polynomial([1.0])
    for step in steps.tolist():
        polynomial *= Polynomial([1.0, step])
    return polynomial


def step_loss(steps: Tensor | Sequence[float], dim: int, n_context: int) -> Tensor:
    """The exact in-context loss E tr r(G)² of layers A_i = a_i Σ⁻¹, for w⋆ ~ N(0, Σ⁻¹).

    Here r is the `residual_polynomial`, and G the whitened Gram matrix. For weights of any other covariance Ω, the loss is
    tr(ΣΩ)/d times as large: E r(G)² commutes with all rotations, so it is a multiple of the identity.

    Args:
        steps: step sizes a_i (negative for gradient descent), shape (..., k).
        dim: the dimension d.
        n_context: n, the number of labeled examples in a prompt.

    Returns:
        The loss, shape (...); it equals d where all steps are 0, and is differentiable in ``steps``.

    Source: the chapter "Optimal step sizes".
    """
    steps = as_numbers("steps", steps)
    nodes, weights = spectrum(dim, n_context, steps.shape[-1] + 1, steps)
    return (1 + steps.unsqueeze(-1) * nodes).prod(-2).square() @ weights


def optimal_step_sizes(dim: int, n_context: int, n_layers: int) -> tuple[Tensor, Fraction]:
    """The steps a_i that minimize the in-context loss of layers A_i = a_i Σ⁻¹, and the minimum as an exact fraction.

    Covariates are N(0, Σ) and weights w⋆ are N(0, Σ⁻¹), as in `step_loss`.

    Among polynomials r of degree k with r(0) = 1, a multiple of the kernel polynomial K_k(λ, 0) of the mean spectrum has the
    smallest mean square. Its roots are the free nodes of the Gauss–Radau rule with a node at 0. The minimum is that node's
    weight, 1 / Σ_j p_j(0)², where the p_j are the orthonormal polynomials.

    Args:
        dim: the dimension d.
        n_context: n, the number of labeled examples in a prompt.
        n_layers: number of layers k.

    Returns:
        Steps a_i in A_i = a_i Σ⁻¹, all negative, in the order of increasing magnitude, float64, shape (k,).
        The loss E[(prediction error)²], not divided by d (with all steps 0 it is d).
        Exact fractions take time. For small d and n, 40 layers take less than a second, 100 layers 10 seconds; see
        `wishart_recurrence`.

    Raises:
        ValueError: if a call would take more than 300 s or 4 GiB.

    Source: the chapter "Optimal step sizes"; Golub (1973), Some modified matrix eigenvalue problems, for the Radau rule.
    """
    n_layers = check_count("n_layers", n_layers)
    dim, n_context = check_count("dim", dim), check_count("n_context", n_context)
    check_degree("n_layers", n_layers, dim, n_context, n_layers + 1)
    alpha, beta = wishart_recurrence(dim, n_context, n_layers + 1)
    values, norm, inverse_loss = [Fraction(0), Fraction(1)], Fraction(1), Fraction(0)
    for a, b in zip(alpha, beta, strict=True):
        norm *= b
        inverse_loss += values[-1] ** 2 / norm
        values.append(-a * values[-1] - b * values[-2])
    # the last diagonal entry is chosen so that 0 becomes a node: π_{k+1}(0) = 0
    alpha = [*alpha[:-1], -beta[-1] * values[-3] / values[-2]]
    nodes = scipy.linalg.eigvalsh_tridiagonal([float(a) for a in alpha], np.sqrt([float(b) for b in beta[1:]]))
    return torch.from_numpy(-1 / np.sort(nodes)[1:][::-1]), 1 / inverse_loss


def marchenko_pastur_steps(ratio: float, n_layers: int) -> tuple[Tensor, float]:
    """Limit of the optimal steps and of the loss per dimension as d and n grow with fixed d / n.

    Args:
        ratio: γ = d / n, positive.
        n_layers: number of layers k.

    Returns:
        Steps a_j = -1 / (1 + γ + 2√γ cos(jπ / (k + 1))) in the order of increasing magnitude, float64, shape (k,).
        The loss divided by d, 1 / Σ_{0 ≤ j ≤ k} γ⁻ʲ.

    Source: the chapter "Optimal step sizes"; Marchenko and Pastur (1967) for the limit of the mean spectrum.
    """
    n_layers = check_count("n_layers", n_layers)
    check_number("ratio", ratio)
    angles = torch.arange(1, n_layers + 1, dtype=torch.float64) * torch.pi / (n_layers + 1)
    steps = -1 / (1 + ratio + 2 * ratio**0.5 * torch.cos(angles))
    powers = sum(min(ratio, 1 / ratio) ** j for j in range(n_layers + 1))  # by the smaller of the two, which cannot overflow
    return steps, min(ratio, 1.0) ** n_layers / powers


def spectrum(dim: int, n_context: int, n_nodes: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """`wishart_quadrature` with the dtype and device of a tensor."""
    nodes, weights = wishart_quadrature(check_count("dim", dim), check_count("n_context", n_context), n_nodes)
    return torch.from_numpy(nodes.copy()).to(like), torch.from_numpy(weights.copy()).to(like)
