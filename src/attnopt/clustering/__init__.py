"""Sparse modular addition, the clustering head, and how it is learned.

Most scripts import from here: `Task`, `Settings`, and `train` or `ensemble`, which train `Models`. `load_models` loads 200
trained models and `load_run` a recorded run; `ideal_circuit` builds a head by hand.
"""

from attnopt.clustering.anatomy import (
    activation_sparsity,
    attention_by_pair,
    counting_form,
    cyclic_step,
    position_effects,
    token_effects,
)
from attnopt.clustering.circuit import cluster_counts, ideal_circuit
from attnopt.clustering.gradients import (
    closed_form_gradients,
    gelu_derivative,
    gradient_bound,
    gradient_bound_of_paper,
    gradient_bound_terms,
    gradient_bound_terms_of_paper,
)
from attnopt.clustering.interventions import levels, removals, replacements
from attnopt.clustering.invariance import invariance, spurious_attention
from attnopt.clustering.model import Models, Module, normalize
from attnopt.clustering.plateau import (
    curvature,
    escape_epochs,
    escape_level,
    find_drops,
    influences,
    log_cosh_half,
    margins,
    parity_coefficient,
    successes,
    walsh,
)
from attnopt.clustering.sandbox import Run, load_run, run_names
from attnopt.clustering.spikes import Course, Spike, State, dissect, find_spikes
from attnopt.clustering.task import Task
from attnopt.clustering.trained import load_model, load_models, load_overview
from attnopt.clustering.training import (
    PAPER,
    Settings,
    Stop,
    Training,
    TrainingState,
    Watch,
    ensemble,
    initial_models,
    load_training,
    save_training,
    train,
    training_data,
)

__all__ = [
    "PAPER",
    "Course",
    "Models",
    "Module",
    "Run",
    "Settings",
    "Spike",
    "State",
    "Stop",
    "Task",
    "Training",
    "TrainingState",
    "Watch",
    "activation_sparsity",
    "attention_by_pair",
    "closed_form_gradients",
    "cluster_counts",
    "counting_form",
    "curvature",
    "cyclic_step",
    "dissect",
    "ensemble",
    "escape_epochs",
    "escape_level",
    "find_drops",
    "find_spikes",
    "gelu_derivative",
    "gradient_bound",
    "gradient_bound_of_paper",
    "gradient_bound_terms",
    "gradient_bound_terms_of_paper",
    "ideal_circuit",
    "influences",
    "initial_models",
    "invariance",
    "levels",
    "load_model",
    "load_models",
    "load_overview",
    "load_run",
    "load_training",
    "log_cosh_half",
    "margins",
    "normalize",
    "parity_coefficient",
    "position_effects",
    "removals",
    "replacements",
    "run_names",
    "save_training",
    "spurious_attention",
    "successes",
    "token_effects",
    "train",
    "training_data",
    "walsh",
]
