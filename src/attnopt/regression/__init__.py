"""Attention as the gradient of a multinomial regression's cross-entropy with respect to its features."""

from attnopt.regression.attention import cross_attention, self_attention
from attnopt.regression.blocks import block_step, unroll, unroll_logits
from attnopt.regression.cross_entropy import pointwise_cross_entropy
from attnopt.regression.flows import feature_flow, feature_gradient
from attnopt.regression.gradients import linear_gradient, quadratic_gradient, quadratic_gradient_of_paper
from attnopt.regression.heads import multi_head_gradient
from attnopt.regression.sinkhorn import sinkhorn_attention, sinkhorn_value
from attnopt.regression.stationarity import separation_margin, stationary_margin

__all__ = [
    "block_step",
    "cross_attention",
    "feature_flow",
    "feature_gradient",
    "linear_gradient",
    "multi_head_gradient",
    "pointwise_cross_entropy",
    "quadratic_gradient",
    "quadratic_gradient_of_paper",
    "self_attention",
    "separation_margin",
    "sinkhorn_attention",
    "sinkhorn_value",
    "stationary_margin",
    "unroll",
    "unroll_logits",
]
