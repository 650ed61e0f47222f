"""What the experiments of Part II share: random covariances, their roots, and distances from multiples of the identity."""

import torch
from torch import Tensor

DIM, DIAGONAL = 5, (1.0, 1.0, 0.5, 0.25, 1.0)  # of Ahn, Cheng, Daneshmand, Sra (2023), sections 5.3 and 6.1


def random_orthogonal(generator: torch.Generator) -> Tensor:
    """A uniformly distributed orthogonal matrix."""
    basis, triangle = torch.linalg.qr(torch.randn(DIM, DIM, dtype=torch.float64, generator=generator))
    return basis * triangle.diagonal().sign()


def random_covariance(generator: torch.Generator) -> Tensor:
    """Σ = UᵀD²U with a uniformly distributed orthogonal U."""
    basis = random_orthogonal(generator)
    return basis.mT * torch.tensor(DIAGONAL, dtype=torch.float64).square() @ basis


def square_roots(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Σ^½ and Σ^(-½)."""
    values, basis = torch.linalg.eigh(covariance)
    return basis * values.sqrt() @ basis.mT, basis * values.rsqrt() @ basis.mT


def dist(matrices: Tensor) -> Tensor:
    """Dist(M, I) = min_α ‖M - αI‖ / ‖M‖, attained at α = tr M / d, for matrices (..., d, d)."""
    mean = matrices.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    identity = torch.eye(matrices.shape[-1], dtype=matrices.dtype)
    return torch.linalg.matrix_norm(matrices - mean * identity) / torch.linalg.matrix_norm(matrices)
