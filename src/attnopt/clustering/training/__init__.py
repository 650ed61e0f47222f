"""Training ensembles of small transformers, as one batched computation or in chunks on many cores."""

from attnopt.clustering.training.draws import initial_models, training_data
from attnopt.clustering.training.record import Stop, Training, TrainingState, load_training, save_training
from attnopt.clustering.training.settings import PAPER, Settings, Watch
from attnopt.clustering.training.trainer import ensemble, train

__all__ = [
    "PAPER",
    "Settings",
    "Stop",
    "Training",
    "TrainingState",
    "Watch",
    "ensemble",
    "initial_models",
    "load_training",
    "save_training",
    "train",
    "training_data",
]
