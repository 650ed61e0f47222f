"""Part IV: what joins the three pictures."""

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
    "gain_bounds",
    "grouped_optimum",
    "information_split",
    "oracle_value",
    "own_label_energy",
    "plateau_time",
    "step_flow",
    "tied_optimum",
    "tied_rates",
]
