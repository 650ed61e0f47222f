"""Part III: sparse modular addition, the clustering head and how it is learned."""

from attnopt.clustering.circuit import cluster_counts, ideal_circuit
from attnopt.clustering.gradients import (
    closed_form_gradients,
    gelu_derivative,
    gradient_bound,
    gradient_bound_as_printed,
    gradient_bound_terms,
    gradient_bound_terms_as_printed,
)
from attnopt.clustering.invariance import invariance, spurious_attention
from attnopt.clustering.model import embedding_table, forward, init_model, normalise, sequences_by_table
from attnopt.clustering.task import modular_addition

__all__ = [
    "closed_form_gradients",
    "cluster_counts",
    "embedding_table",
    "forward",
    "gelu_derivative",
    "gradient_bound",
    "gradient_bound_as_printed",
    "gradient_bound_terms",
    "gradient_bound_terms_as_printed",
    "ideal_circuit",
    "init_model",
    "invariance",
    "modular_addition",
    "normalise",
    "sequences_by_table",
    "spurious_attention",
]
