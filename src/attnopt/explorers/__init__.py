"""Explorers: widgets that a reader steers, live with a kernel and in the static page without one."""

from attnopt.explorers.attention_field import AttentionFieldExplorer
from attnopt.explorers.base import Explorer
from attnopt.explorers.feature_flow import FeatureFlowExplorer
from attnopt.explorers.gdpp import GdppExplorer
from attnopt.explorers.gradient_bound import GradientBoundExplorer
from attnopt.explorers.ideal_circuit import IdealCircuitExplorer
from attnopt.explorers.image_steps import ImageStepsExplorer
from attnopt.explorers.layer_steps import LayerStepsExplorer
from attnopt.explorers.layers import LayersExplorer
from attnopt.explorers.one_layer import OneLayerExplorer
from attnopt.explorers.sandbox import Sandbox
from attnopt.explorers.softmax import SoftmaxExplorer
from attnopt.explorers.step_sizes import StepSizesExplorer
from attnopt.explorers.task_model import TaskModelExplorer

__all__ = [
    "AttentionFieldExplorer",
    "Explorer",
    "FeatureFlowExplorer",
    "GdppExplorer",
    "GradientBoundExplorer",
    "IdealCircuitExplorer",
    "ImageStepsExplorer",
    "LayerStepsExplorer",
    "LayersExplorer",
    "OneLayerExplorer",
    "Sandbox",
    "SoftmaxExplorer",
    "StepSizesExplorer",
    "TaskModelExplorer",
]
