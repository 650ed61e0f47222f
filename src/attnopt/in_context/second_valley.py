"""A second local minimum of the one-layer loss, which is not gradient descent, and the exact loss along a path to it.

In the eigenbasis of Σ, let j be one of its directions, b = (sin θ e_j, cos θ), the first d rows A₁ of A diagonal, and its
last row α a multiple of e_j; the loss is minimized over A₁ and α. At θ = 0, this gives the optimum of `one_layer_optimum`,
and at 90° the best layer that reads only coordinate j. Sign flips of the other coordinates leave the loss unchanged, so a
critical point of the resulting function of θ is a critical point of the whole loss.
"""

import math

import torch
from torch import Tensor

from attnopt.checks import check_count, check_entries, check_tensors, check_vectors

GRID, CUTS = 256, 60
GOLDEN = (1 + math.sqrt(5)) / 2


def valley_loss(angle: Tensor, eigenvalues: Tensor, n_context: int, direction: int = 0) -> Tensor:
    """The least one-layer loss at the angle θ between b and e_{d+1}, in a family of parameters b and A of `attention_loss`.

    In the eigenbasis of Σ, the family has b = (sin θ e_j, cos θ), an A whose first d rows are diagonal, and a multiple of
    e_j as the last row of A. At θ = 0, the loss is that of `one_layer_optimum`.

    Args:
        angle: θ in radians, any shape.
        eigenvalues: eigenvalues of Σ, positive, shape (d,).
        n_context: n, the number of labeled examples in a prompt.
        direction: j, from 0 to d - 1, the index of the eigenvector e_j toward which b turns.

    Returns:
        The loss, in the shape of ``angle``.

    Source: the chapter "One layer, one step".
    """
    check_tensors(angle=angle, eigenvalues=eigenvalues)
    own, others, (first, mixed, last) = _parts(angle, eigenvalues, n_context, direction)
    c, e = torch.sin(angle) ** 2, torch.cos(angle) ** 2
    removed = own**4 * (e * last + c * first - 2 * c * e * mixed) / (first * last - c * e * mixed**2)
    stiffness = _stiffness(angle, others, eigenvalues, own, n_context)
    rest = (others - n_context * others**2 * e[..., None] / stiffness).sum(-1)
    return own - removed + rest


def valley_parameters(angle: Tensor, eigenvalues: Tensor, n_context: int, direction: int = 0) -> tuple[Tensor, Tensor]:
    """The parameters b (of norm 1) and A whose loss is `valley_loss`, in the eigenbasis of Σ.

    Args:
        angle: θ in radians, any shape.
        eigenvalues: eigenvalues of Σ, positive, shape (d,).
        n_context: n, the number of labeled examples in a prompt.
        direction: j, from 0 to d - 1, the index of the eigenvector e_j toward which b turns.

    Returns:
        b, shape (..., d + 1), and A, shape (..., d + 1, d).

    Source: the chapter "One layer, one step".
    """
    check_tensors(angle=angle, eigenvalues=eigenvalues)
    own, _, (first, mixed, last) = _parts(angle, eigenvalues, n_context, direction)
    x, s, dim = torch.sin(angle), torch.cos(angle), len(eigenvalues)
    determinant = first * last - (x * s * mixed) ** 2
    b, A = angle.new_zeros(*angle.shape, dim + 1), angle.new_zeros(*angle.shape, dim + 1, dim)
    b[..., direction], b[..., -1] = x, s
    stiffness = _stiffness(angle, eigenvalues, eigenvalues, own, n_context)
    A[..., range(dim), range(dim)] = -n_context * s[..., None] / stiffness
    A[..., direction, direction] = own**2 * (x * x * s * mixed - s * last) / determinant
    A[..., -1, direction] = own**2 * (x * s * s * mixed - x * first) / determinant
    return b, A


def second_valley(eigenvalues: Tensor, n_context: int, direction: int = 0) -> tuple[float, float] | None:
    """The local minimum of `valley_loss` at an angle other than 0.

    Args:
        eigenvalues: eigenvalues of Σ, positive, float64, shape (d,), d at least 2.
        n_context: n, the number of labeled examples in a prompt.
        direction: j, from 0 to d - 1, the index of the eigenvector e_j toward which b turns.

    Returns:
        Its angle in radians, at most π/2, and its loss; None if there is no such minimum.

    Source: the chapter "One layer, one step".
    """
    check_vectors(eigenvalues=eigenvalues)
    if eigenvalues.shape[-1] < 2:
        raise ValueError(f"eigenvalues must be at least two, got {eigenvalues.tolist()}")
    eigenvalues = eigenvalues.double()
    grid = torch.linspace(0, math.pi / 2, GRID + 1, dtype=torch.float64)
    losses = valley_loss(grid, eigenvalues, n_context, direction)
    # the loss is even in the angle about π/2, too, so its mirror image continues it beyond the grid
    after = torch.cat([losses[1:], losses[-2:-1]])
    dips = [i for i in range(1, GRID + 1) if losses[i] < losses[i - 1] and losses[i] <= after[i]]
    if not dips:
        return None
    if dips[-1] == GRID:
        return math.pi / 2, losses[-1].item()
    low, high = grid[dips[-1] - 1].item(), grid[dips[-1] + 1].item()
    for _ in range(CUTS):  # golden section
        inner = torch.tensor([high - (high - low) / GOLDEN, low + (high - low) / GOLDEN], dtype=torch.float64)
        left, right = valley_loss(inner, eigenvalues, n_context, direction).tolist()
        low, high = (low, inner[1].item()) if left < right else (inner[0].item(), high)
    angle = torch.tensor((low + high) / 2, dtype=torch.float64)
    return angle.item(), valley_loss(angle, eigenvalues, n_context, direction).item()


def _stiffness(angle: Tensor, these: Tensor, eigenvalues: Tensor, own: Tensor, n: int) -> Tensor:
    """((n + 1)λ_i + tr Σ) cos²θ + λ_j sin²θ; for i other than j, the entry of A₁ is -n cos θ divided by it."""
    e = torch.cos(angle)[..., None] ** 2
    return ((n + 1) * these + eigenvalues.sum()) * e + own * (1 - e)


def _parts(angle: Tensor, eigenvalues: Tensor, n: int, direction: int) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """λ_j, the other eigenvalues, and the coefficients of the quadratic form in the entries j of A₁ and α."""
    n = check_count("n_context", n)
    check_entries("angle", angle)
    check_vectors(eigenvalues=eigenvalues)
    if eigenvalues.ndim != 1 or not (eigenvalues > 0).all():
        raise ValueError(f"eigenvalues must be one row of positive numbers, got {eigenvalues.tolist()}")
    if check_count("direction", direction, 0) >= len(eigenvalues):
        raise ValueError(f"direction must be in 0..{len(eigenvalues) - 1}, got {direction}")
    own, trace, squares = eigenvalues[direction], eigenvalues.sum(), eigenvalues.square().sum()
    others = torch.cat([eigenvalues[:direction], eigenvalues[direction + 1 :]])
    odd = own**2 * ((n + 1) * own + trace) / n
    key = own**3 * (n + 2) / n
    both = own * (trace * own + 2 * own**2 / n)
    label = own * ((1 + 2 / n) * trace**2 + (2 + 4 / n) * squares)
    c, e = torch.sin(angle) ** 2, torch.cos(angle) ** 2
    return own, others, (odd * e + key * c, odd + both, odd * c + label * e)
