"""Part IV: what joins the three pictures."""

from attnopt.synthesis.labels import bayes_layer, context_accuracy_bound, label_layers, own_label_accuracy
from attnopt.synthesis.loops import grouped_optimum, plateau_time, step_flow, tied_optimum, tied_rates
from attnopt.synthesis.oracles import (
    Split,
    attention_spread,
    gain_bounds,
    information_split,
    oracle_value,
    own_label_energy,
)

__all__ = [
    "Split",
    "attention_spread",
    "bayes_layer",
    "context_accuracy_bound",
    "gain_bounds",
    "grouped_optimum",
    "information_split",
    "label_layers",
    "oracle_value",
    "own_label_accuracy",
    "own_label_energy",
    "plateau_time",
    "step_flow",
    "tied_optimum",
    "tied_rates",
]
