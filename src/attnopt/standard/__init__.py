"""Part V: the book's questions, put to transformers as people build them."""

from attnopt.standard.probes import explained, fitted_reading
from attnopt.standard.regression import as_tokens, krylov_answers, newton_answers, ridge_answers
from attnopt.standard.trained import load_regressor
from attnopt.standard.transformer import Transformer, train

__all__ = [
    "Transformer",
    "as_tokens",
    "explained",
    "fitted_reading",
    "krylov_answers",
    "load_regressor",
    "newton_answers",
    "ridge_answers",
    "train",
]
