"""Part IV: what joins the three pictures."""

from attnopt.synthesis.labels import bayes_layer, context_accuracy_bound, label_layers, own_label_accuracy
from attnopt.synthesis.loops import grouped_optimum, plateau_time, step_flow, tied_optimum, tied_rates

__all__ = [
    "bayes_layer",
    "context_accuracy_bound",
    "grouped_optimum",
    "label_layers",
    "own_label_accuracy",
    "plateau_time",
    "step_flow",
    "tied_optimum",
    "tied_rates",
]
