"""What connects the three views of attention in Parts I to III."""

from attnopt.synthesis.contexts import Error, Limit, Reading, mixture_error, mixture_limit, read_context
from attnopt.synthesis.knowledge import (
    Price,
    agreement_number,
    best_agreement,
    draw_prompts,
    examples_needed,
    positive_number,
    read_out,
    softmax_price,
    unseen_mass,
)
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
    "Error",
    "Limit",
    "Price",
    "Reading",
    "Split",
    "agreement_number",
    "attention_spread",
    "bayes_layer",
    "best_agreement",
    "context_accuracy_bound",
    "draw_prompts",
    "examples_needed",
    "gain_bounds",
    "grouped_optimum",
    "information_split",
    "label_layers",
    "mixture_error",
    "mixture_limit",
    "oracle_value",
    "own_label_accuracy",
    "own_label_energy",
    "plateau_time",
    "positive_number",
    "read_context",
    "read_out",
    "softmax_price",
    "step_flow",
    "tied_optimum",
    "tied_rates",
    "unseen_mass",
]
