"""Explorers: widgets that a reader steers, live with a kernel and in the static page without one."""

from attnopt.explorers.attention_field import AttentionFieldExplorer
from attnopt.explorers.base import Explorer
from attnopt.explorers.feature_flow import FeatureFlowExplorer
from attnopt.explorers.gradient_bound import GradientBoundExplorer
from attnopt.explorers.image_steps import ImageStepsExplorer
from attnopt.explorers.layers import LayersExplorer
from attnopt.explorers.softmax import SoftmaxExplorer

__all__ = [
    "AttentionFieldExplorer",
    "Explorer",
    "FeatureFlowExplorer",
    "GradientBoundExplorer",
    "ImageStepsExplorer",
    "LayersExplorer",
    "SoftmaxExplorer",
]
