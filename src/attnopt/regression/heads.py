"""Several heads: the gradient of a sum of cross-entropies, one for each head."""

from torch import Tensor

from attnopt.checks import Axis, check_broadcast, check_matrices, check_matrix_shape
from attnopt.regression.gradients import linear_gradient


def multi_head_gradient(features: Tensor, projections: Tensor, weights: Tensor, labels: Tensor, axis: Axis) -> Tensor:
    """Gradient in Z of a sum of cross-entropies, one for each head h, which sees the projected features ZP_h.

    Each head contributes its attention minus its labels, mapped back by P_hᵀ.

    Args:
        features: Z, shape (..., S, F).
        projections: P, the projection of each head, shape (..., H, F, D).
        weights: θ, the keys of each head, which are also its values, shape (..., H, K, D).
        labels: C, shape (..., H, S, K), non-negative, summing to 1 along ``axis``.
        axis: the axis along which softmax and labels are normalized.

    Returns:
        Σ_h (σ(ZP_hθ_hᵀ) - C_h)θ_hP_hᵀ, shape (..., S, F).

    Source: the chapter "Flows become layers"; Actor, Gruber, Cyr (2025) leave it to future work.
    """
    check_matrices(features=features, projections=projections, weights=weights, labels=labels)
    for name, value in (("projections", projections), ("weights", weights), ("labels", labels)):
        if value.ndim < 3:
            raise ValueError(f"{name} must have a dimension of heads, (..., H, rows, columns), got {tuple(value.shape)}")
    check_matrix_shape("projections", projections, (features.shape[-1], weights.shape[-1]), "to match features and weights")
    own = {"features": 2, "projections": 3, "weights": 3, "labels": 3}
    check_broadcast(own, features=features, projections=projections, weights=weights, labels=labels)
    seen = features.unsqueeze(-3) @ projections
    return (linear_gradient(seen, weights, labels, axis) @ projections.mT).sum(-3)
