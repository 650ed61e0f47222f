"""Layers that also move the covariates (GD++): A_i = a_i Σ⁻¹ and B_i = b_i I, their exact loss and its minimum."""

import functools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy.optimize import leastsq
from torch import Tensor

from attnopt.checks import as_numbers, check_broadcast, check_count, check_tensors, check_vectors
from attnopt.in_context.steps import spectrum
from attnopt.in_context.wishart import wishart_quadrature

Pair = tuple[np.ndarray, np.ndarray]

STARTS, GROUP = 300, 64  # groups of random points, and their size; least squares starts at the best of each


def gdpp_residuals(steps: Tensor, curvatures: Tensor, eigenvalues: Tensor) -> tuple[Tensor, Tensor]:
    """Residual R_i and eigenvalue λ_i before each layer i, in an eigendirection of the whitened Gram matrix.

    The layers are A_i = a_i Σ⁻¹, B_i = b_i I. From R_0 = 1 and λ_0 = λ follow R_{i+1} = R_i (1 + a_i λ_i) and
    λ_{i+1} = λ_i (1 + c_i λ_i)² with c_i = a_i b_i.

    Args:
        steps: step sizes a_i, shape (..., k).
        curvatures: c_i = a_i b_i of all layers except the last, whose B_i has no effect, shape (..., k - 1).
        eigenvalues: λ of the Gram matrix, shape (q,).

    Returns:
        Residuals R_0 … R_k, shape (k + 1, ..., q), and eigenvalues λ_0 … λ_{k-1}, shape (k, ..., q).

    Source: the chapter "Beyond gradient descent".
    """
    check_vectors(steps=steps, eigenvalues=eigenvalues)
    if eigenvalues.ndim != 1:
        raise ValueError(f"eigenvalues must be one row of numbers, got shape {tuple(eigenvalues.shape)}")
    _check_curvatures(steps, curvatures)
    batch = torch.broadcast_shapes(steps.shape[:-1], curvatures.shape[:-1])
    residuals, seen = [steps.new_ones(*batch, eigenvalues.shape[-1])], [eigenvalues.expand(*batch, -1)]
    for i in range(steps.shape[-1]):
        residuals.append(residuals[-1] * (1 + steps[..., i, None] * seen[-1]))
        if i + 1 < steps.shape[-1]:
            seen.append(seen[-1] * (1 + curvatures[..., i, None] * seen[-1]).square())
    return torch.stack(residuals), torch.stack(seen)


def gdpp_loss(steps: Tensor | Sequence[float], curvatures: Tensor | Sequence[float], dim: int, n_context: int) -> Tensor:
    """The exact in-context loss E tr R_k(G)² of layers A_i = a_i Σ⁻¹, B_i = b_i I, for w⋆ ~ N(0, Σ⁻¹).

    R_k is the last residual of `gdpp_residuals`, and G the whitened Gram matrix. For weights of any other covariance Ω, the
    loss is tr(ΣΩ)/d times as large, as for `step_loss`.

    Args:
        steps: step sizes a_i, shape (..., k).
        curvatures: products a_i b_i of all layers except the last, shape (..., k - 1); empty for one layer.
        dim: the dimension d.
        n_context: n, the number of labeled examples in a prompt.

    Returns:
        The loss, not divided by d, shape (...); differentiable in ``steps`` and ``curvatures``.

    Source: the chapter "Beyond gradient descent".
    """
    steps = as_numbers("steps", steps)
    if not isinstance(curvatures, Tensor):
        none = isinstance(curvatures, Sequence) and not len(curvatures)
        curvatures = steps.new_empty(0) if none else as_numbers("curvatures", curvatures)
    check_tensors(curvatures=curvatures)
    curvatures = curvatures.to(steps)
    nodes, weights = spectrum(dim, n_context, n_nodes(steps.shape[-1]), steps)
    return gdpp_residuals(steps, curvatures, nodes)[0][-1].square() @ weights


def gdpp_optimum(dim: int, n_context: int, n_layers: int) -> tuple[Tensor, Tensor, float]:
    """The steps and curvatures with the least `gdpp_loss` that local minimization from many starting points finds.

    The loss has several local minima. The search is deterministic and can miss the lowest: data/gdpp_optima.json holds
    lower ones for some sizes with three layers and for most with four.

    Args:
        dim: the dimension d.
        n_context: n, the number of labeled examples in a prompt.
        n_layers: number of layers k, at most 4 (the loss has degree 3ᵏ - 1 in the Gram matrix).

    Returns:
        Steps a_i in the order of the layers, float64, shape (k,); curvatures a_i b_i of all except the last, shape (k - 1,);
        and the loss, not divided by d.

    Source: the chapter "Beyond gradient descent".
    """
    steps, curvatures, loss = _optimum(check_count("dim", dim), check_count("n_context", n_context), _check_depth(n_layers))
    return steps.clone(), curvatures.clone(), loss  # copies, so that no caller changes the cache


@functools.cache
def _optimum(dim: int, n_context: int, k: int) -> tuple[Tensor, Tensor, float]:
    nodes, weights = wishart_quadrature(dim, n_context, n_nodes(k))
    roots = np.sqrt(weights)

    both = _last(lambda x: _residual(x, nodes))
    best, least = None, np.inf
    for start in _starts(dim, n_context, k).numpy():
        # MINPACK as `least_squares` calls it, without the checks and copies that take longer than the residuals
        end, _, told, *_ = leastsq(
            lambda x: roots * both(x)[0], start, (), lambda x: roots[:, None] * both(x)[1], full_output=True, maxfev=400,
            xtol=1e-14, ftol=1e-14, gtol=1e-14,
        )  # fmt: skip
        cost = 0.5 * np.dot(told["fvec"], told["fvec"])
        if cost < least:
            best, least = end, cost
    point = torch.from_numpy(best)
    return point[:k], point[k:], 2 * least


def _last(function: Callable[[np.ndarray], Pair]) -> Callable[[np.ndarray], Pair]:
    """A function that keeps its last value: MINPACK asks for the residuals at a point, then for their derivatives."""
    kept: list[tuple[np.ndarray, Pair]] = []

    def last(x: np.ndarray) -> Pair:
        if not kept or not np.array_equal(x, kept[0][0]):
            kept[:] = [(x.copy(), function(x))]
        return kept[0][1]

    return last


def _starts(dim: int, n_context: int, k: int) -> Tensor:
    """The starting points (a, c), each the best of a group of random points, shape (STARTS, 2k - 1).

    A layer takes steps of the size of 1 over the eigenvalues that it sees, which shrink from layer to layer.
    """
    generator = torch.Generator().manual_seed(0)
    draws = torch.rand(STARTS * GROUP, 2 * k - 1, generator=generator, dtype=torch.float64)
    largest = torch.tensor(wishart_quadrature(dim, n_context, n_nodes(k))[0].max())
    growth = 3.0 ** torch.arange(k)
    points = torch.cat([-2 * growth * draws[:, :k], -1.5 * growth[: k - 1] * draws[:, k:]], 1) / largest.clamp(min=1)
    losses = gdpp_loss(points[:, :k], points[:, k:], dim, n_context)
    return points[losses.reshape(STARTS, GROUP).argmin(1) + GROUP * torch.arange(STARTS)]


def _residual(point: np.ndarray, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """R_k at the nodes and its derivatives in all a_i and c_i, one column each."""
    k = (len(point) + 1) // 2
    a, c = point[:k], point[k:]
    value, seen = np.ones_like(nodes), nodes
    d_value, d_seen = np.zeros((2, len(point), nodes.size))
    for i in range(k):
        factor = 1 + a[i] * seen
        d_value = d_value * factor + value * a[i] * d_seen
        d_value[i] += value * seen
        value = value * factor
        if i < len(c):
            growth = 1 + c[i] * seen
            d_seen = d_seen * growth * (growth + 2 * c[i] * seen)
            d_seen[k + i] += 2 * growth * seen**2
            seen = seen * growth**2
    return value, d_value.T


def n_nodes(n_layers: int) -> int:
    """The number of nodes with which the quadrature of R_k² is exact: R_k has degree (3ᵏ - 1)/2."""
    return (3 ** _check_depth(n_layers) - 1) // 2 + 1


def _check_depth(n_layers: int) -> int:
    if check_count("n_layers", n_layers) > 4:
        raise ValueError(f"n_layers must be at most 4 (degree 3ᵏ - 1 = 80 in the Gram matrix), got {n_layers}")
    return n_layers


def _check_curvatures(steps: Tensor, curvatures: Tensor) -> None:
    check_tensors(steps=steps, curvatures=curvatures)
    if curvatures.ndim == 0 or curvatures.shape[-1] != steps.shape[-1] - 1:
        raise ValueError(
            f"curvatures must have one number for each layer but the last, {steps.shape[-1] - 1}, "
            f"got shape {tuple(curvatures.shape)}"
        )
    if not torch.isfinite(curvatures).all():
        raise ValueError(f"curvatures must be finite, got {curvatures[~torch.isfinite(curvatures)][0].item()}")
    check_broadcast(1, steps=steps, curvatures=curvatures)
