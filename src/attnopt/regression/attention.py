"""Cross- and self-attention as Actor, Gruber, and Cyr write them: one matrix for keys and values, and no factor 1/√d."""

from torch import Tensor

from attnopt.checks import Axis, check_broadcast, check_matrices, check_matrix_shape
from attnopt.softmax import softmax


def cross_attention(features: Tensor, weights: Tensor, axis: Axis) -> Tensor:
    """Cross-attention of the features (queries) to the weights (keys and values at once), σ(Zθᵀ)θ.

    Args:
        features: Z, shape (..., S, F).
        weights: θ, shape (..., K, F).
        axis: "class" normalizes over the keys, as scaled dot-product attention does; "sequence" over the queries,
            as the papers' σ_i does (and slot attention at first).

    Returns:
        One combination of rows of θ for each token, shape (..., S, F).

    Source: Actor, Gruber, Cyr (2025), eq. (4).
    """
    check_matrices(features=features, weights=weights)
    check_matrix_shape("weights", weights, (weights.shape[-2], features.shape[-1]), "to match features")
    check_broadcast(features=features, weights=weights)
    return softmax(features @ weights.mT, axis) @ weights


def self_attention(x: Tensor, axis: Axis) -> Tensor:
    """Self-attention with queries, keys, and values all equal to x, σ(x xᵀ)x.

    Args:
        x: tokens, shape (..., S, F).
        axis: as in `cross_attention`.

    Returns:
        One combination of rows of x for each token, shape (..., S, F).

    Source: Actor, Gruber, Cyr (2025), eq. (8).
    """
    check_matrices(x=x)
    return softmax(x @ x.mT, axis) @ x
