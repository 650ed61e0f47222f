"""The point-wise cross-entropy that Part I minimizes over features."""

from torch import Tensor

from attnopt.checks import Axis, check_broadcast, check_labels, check_matrices, check_matrix_shape
from attnopt.softmax import logsumexp


def pointwise_cross_entropy(logits: Tensor, labels: Tensor, axis: Axis) -> Tensor:
    """Cross-entropy of one data point, ⟨1, LSE(N)⟩ - ⟨C, N⟩, which is convex in the logits N.

    Args:
        logits: N, shape (..., S, K).
        labels: C, shape (..., S, K), non-negative, summing to 1 along ``axis``.
        axis: the axis along which softmax and labels are normalized.

    Returns:
        The cross-entropy in nats, summed over the slices, shape (...).

    Source: Actor, Gruber, Cyr (2025), eq. (3).
    """
    check_matrices(logits=logits, labels=labels)
    check_matrix_shape("labels", labels, logits.shape[-2:], "like logits")
    check_broadcast(logits=logits, labels=labels)
    check_labels(labels, axis)
    return logsumexp(logits, axis).sum(-1) - (labels * logits).sum((-2, -1))
