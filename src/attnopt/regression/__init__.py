"""Part I: attention as the gradient of a multinomial regression's cross-entropy in its features."""

from attnopt.regression.attention import cross_attention, self_attention
from attnopt.regression.cross_entropy import pointwise_cross_entropy
from attnopt.regression.gradients import linear_gradient, quadratic_gradient, quadratic_gradient_as_printed
from attnopt.regression.sinkhorn import sinkhorn_attention, sinkhorn_value
from attnopt.regression.stationarity import stationary_margin

__all__ = [
    "cross_attention",
    "linear_gradient",
    "pointwise_cross_entropy",
    "quadratic_gradient",
    "quadratic_gradient_as_printed",
    "self_attention",
    "sinkhorn_attention",
    "sinkhorn_value",
    "stationary_margin",
]
