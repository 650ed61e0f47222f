"""The book's questions about attention, put to standard transformers."""

from attnopt.standard.counting import as_one_hot, best_count, count_levels, level_means
from attnopt.standard.probes import explained, fitted_reading
from attnopt.standard.regression import as_tokens, krylov_answers, newton_answers, ridge_answers
from attnopt.standard.trained import load_counter, load_guesser, load_regressor
from attnopt.standard.transformer import Transformer, train

__all__ = [
    "Transformer",
    "as_one_hot",
    "as_tokens",
    "best_count",
    "count_levels",
    "explained",
    "fitted_reading",
    "krylov_answers",
    "level_means",
    "load_counter",
    "load_guesser",
    "load_regressor",
    "newton_answers",
    "ridge_answers",
    "train",
]
