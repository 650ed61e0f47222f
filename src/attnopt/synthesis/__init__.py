"""Part IV: what joins the three pictures."""

from attnopt.synthesis.loops import grouped_optimum, plateau_time, step_flow, tied_optimum, tied_rates

__all__ = ["grouped_optimum", "plateau_time", "step_flow", "tied_optimum", "tied_rates"]
