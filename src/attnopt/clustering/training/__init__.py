"""Training ensembles of the small transformer as one batched computation, and fanning ensembles out."""

from attnopt.clustering.training.ensemble import ensemble, load_training, save_training
from attnopt.clustering.training.loop import Training, initial_models, train, training_data

__all__ = ["Training", "ensemble", "initial_models", "load_training", "save_training", "train", "training_data"]
