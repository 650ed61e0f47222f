"""The largest eigenvalue of the training loss's Hessian, with or without a preconditioner, for many models at once."""

import torch
from torch import Tensor

from attnopt.checks import check_count
from attnopt.clustering.model import Norm
from attnopt.clustering.training.backward import Layout, loss_and_gradients

CHUNK = 2**22  # activations computed at a time


def gradients(layout: Layout, rows: Tensor, marked: Tensor, truth: Tensor, norm: Norm) -> Tensor:
    """Gradients of the mean loss of M models, one per row, on marks (M, n, pL) with one-hot labels (M, n, p)."""
    found, (receptors, _) = torch.zeros_like(rows), layout.shapes["receptors"]
    chunk = max(1, CHUNK // (marked.shape[1] * receptors))
    for at in range(0, len(rows), chunk):
        part = slice(at, at + chunk)
        loss_and_gradients(
            layout.views(rows[part]), layout.views(found[part]), marked[part], truth[part].mT.contiguous(), norm
        )
    return found


def sharpness(
    layout: Layout,
    rows: Tensor,
    marked: Tensor,
    truth: Tensor,
    norm: Norm,
    preconditioner: Tensor | None = None,
    iterations: int = 40,
    step: float = 1e-5,
) -> Tensor:
    """Largest eigenvalue of the Hessian of every model's mean loss, by Lanczos's method.

    Products with the Hessian H are central differences of the gradient in float64.

    Args:
        layout: layout of the rows.
        rows: weights, one row per model, as returned by `Layout.rows`.
        marked: n training sequences per model, as returned by `attnopt.clustering.model.marks`, shape (M, n, pL).
        truth: one-hot labels, shape (M, n, p).
        norm: the models' normalization.
        preconditioner: positive diagonal P, of the shape of ``rows``; if given, the result is for P⁻¹H instead of H.
        iterations: number of iterations of Lanczos's method, at most one per parameter.
        step: relative length of the differences.

    Returns:
        Eigenvalues, shape (M,).
    """
    check_count("iterations", iterations)
    rows, marked, truth = rows.double(), marked.double(), truth.double()
    size = layout.spans()["assembler_bias"].stop
    scale = torch.ones_like(rows) if preconditioner is None else preconditioner.double().rsqrt()
    if not (scale[:, :size].isfinite().all() and (scale[:, :size] > 0).all()):
        raise ValueError("preconditioner must be positive")
    scale[:, size:] = 0.0
    generator = torch.Generator().manual_seed(0)
    vector = torch.randn(rows.shape[1], generator=generator, dtype=rows.dtype).expand_as(rows) * (scale > 0)
    basis, diagonal, beside = [vector / vector.norm(dim=1, keepdim=True)], [], []
    for _ in range(min(iterations, size)):
        direction = basis[-1] * scale
        length = step * (1 + rows.norm(dim=1, keepdim=True)) / direction.norm(dim=1, keepdim=True)
        up, down = (gradients(layout, rows + sign * length * direction, marked, truth, norm) for sign in (1, -1))
        product = (up - down) / (2 * length) * scale
        diagonal.append((product * basis[-1]).sum(1))
        known = torch.stack(basis, 1)
        for _ in range(2):
            product = product - ((known @ product.unsqueeze(-1)) * known).sum(1)
        beside.append(product.norm(dim=1))
        basis.append(product / beside[-1].clamp_min(torch.finfo(rows.dtype).tiny).unsqueeze(1))
    beside = torch.stack(beside[:-1], -1)
    matrix = torch.diag_embed(torch.stack(diagonal, -1)) + torch.diag_embed(beside, 1) + torch.diag_embed(beside, -1)
    return torch.linalg.eigvalsh(matrix)[:, -1]
