"""Settings of a training, by default those of the paper's released code, and what to record of it."""

import dataclasses
import math
import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from torch import Tensor

from attnopt.checks import check_count, check_flag, check_number, check_word, is_truth
from attnopt.clustering.model import Norm
from attnopt.clustering.task import Task, check_task

Draws = Literal["torch", "laboratory"]
PER_MODEL = ("width", "batch_size", "learning_rate", "mlp_discount", "weight_decay", "clip")
LEAST = 1e-38  # single precision can tell it from 0, so no weight whose gradients vanish is divided by 0


@dataclass(frozen=True)
class Settings:
    """Settings that, together with a seed, determine a training run; the defaults are those of the released code's ``run``.

    Each of the last six is one number, or a sequence with one number per model, so one call can train a grid of settings.
    The feed-forward layer of trained models has biases.

    Attributes:
        task: the task to learn.
        vocabulary: number of tokens with an embedding, by default the task's p; further tokens are only labels that are
            never right.
        dim: dimension of the embeddings, d.
        norm: the models' normalization.
        n_train: training sequences per model.
        epochs: passes through the training set.
        draws: source of the random numbers for the initial weights, the data, and the order of the batches: "torch", or
            "laboratory" to repeat a run of the book's laboratory, where each model has its own order. The laboratory
            computes in double precision, as `train` does with ``dtype=torch.float64``.
        betas: Adam's β₁ and β₂ for all models, at least 0 and less than 1.
        eps: Adam's ε for all models.
        width: number of neurons in the feed-forward layer, h.
        batch_size: sequences per step; the last batch of an epoch may be smaller.
        learning_rate: Adam's learning rate.
        mlp_discount: divisor of the learning rate in the feed-forward layer.
        weight_decay: decoupled weight decay, which shrinks weights by this times the learning rate before each Adam step.
        clip: maximum gradient norm per step; longer gradients are scaled down to it.

    Source: Odonnat, Bouaziz, Cabannes (2025), Appendix A, and their released code.
    """

    task: Task = field(default_factory=Task)
    vocabulary: int | None = None
    dim: int = 2
    norm: Norm = "rms"
    n_train: int = 2048
    epochs: int = 1000
    draws: Draws = "torch"
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    width: int | Sequence[int] = 32
    batch_size: int | Sequence[int] = 32
    learning_rate: float | Sequence[float] = 3e-3
    mlp_discount: float | Sequence[float] = 1.0
    weight_decay: float | Sequence[float] = 0.0
    clip: float | Sequence[float] = math.inf

    def __post_init__(self) -> None:
        check_task(self.task)
        check_word("norm", self.norm, get_args(Norm))
        check_word("draws", self.draws, get_args(Draws))
        for name, least in (("dim", 1), ("n_train", 1), ("epochs", 0)):
            object.__setattr__(self, name, check_count(name, getattr(self, name), least))
        if self.vocabulary is not None:
            object.__setattr__(self, "vocabulary", check_count("vocabulary", self.vocabulary, self.task.p))
        object.__setattr__(self, "betas", _check_betas(self.betas))
        check_number("eps", self.eps, LEAST)
        object.__setattr__(self, "eps", float(self.eps))
        for name in PER_MODEL:
            value = getattr(self, name)
            value = value.tolist() if isinstance(value, np.ndarray | np.generic | Tensor) else value
            value = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
            object.__setattr__(self, name, value)
            for one in value if isinstance(value, tuple) else (value,):
                _check_number(name, one)

    @property
    def tokens(self) -> int:
        """Number of tokens with an embedding."""
        return self.task.p if self.vocabulary is None else self.vocabulary

    def each(self, models: int) -> "Grid":
        """The same settings for this number of models, with one value per model for each of the last six."""
        values: dict[str, Any] = {part.name: getattr(self, part.name) for part in dataclasses.fields(self)}
        for name in PER_MODEL:
            values[name] = values[name] if isinstance(values[name], tuple) else (values[name],) * models
            if len(values[name]) != models:
                raise ValueError(f"{name} must be one value or one per model, {models}, got {len(values[name])}")
        return Grid(**values)


@dataclass(frozen=True)
class Grid(Settings):
    """Settings with one value per model for each of the last six."""

    width: tuple[int, ...] = ()
    batch_size: tuple[int, ...] = ()
    learning_rate: tuple[float, ...] = ()
    mlp_discount: tuple[float, ...] = ()
    weight_decay: tuple[float, ...] = ()
    clip: tuple[float, ...] = ()

    def of(self, members: Sequence[int]) -> "Grid":
        """The settings of some of the models."""
        return dataclasses.replace(self, **{name: tuple(getattr(self, name)[at] for at in members) for name in PER_MODEL})


@dataclass(frozen=True)
class Watch:
    """What to record during training; recording does not change the results.

    Attributes:
        every: epochs between evaluations. There is always one after the last epoch, and one before the first
            unless training starts from a saved state. At the paper's sizes, an evaluation takes as long
            as 1.2 to 1.9 epochs of compiled steps (see `train`).
        snapshots: epochs after which the models are kept; 0 is before the first epoch.
        resumable: whether Adam's moments are kept with the snapshots, so that `train` can continue from them exactly.
    """

    every: int = 10
    snapshots: Sequence[int] = ()
    resumable: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.snapshots, Iterable):  # a set or a generator is accepted
            raise TypeError(f"snapshots must be epochs, got {self.snapshots!r}")
        object.__setattr__(self, "every", check_count("every", self.every))
        kept = sorted({check_count("snapshots", epoch, 0) for epoch in self.snapshots})
        object.__setattr__(self, "snapshots", tuple(kept))
        check_flag("resumable", self.resumable)


def _check_betas(betas: Sequence[float]) -> tuple[float, float]:
    """Require two numbers, each at least 0 and less than 1."""
    betas = betas.tolist() if isinstance(betas, np.ndarray | Tensor) else betas
    if not isinstance(betas, Sequence) or isinstance(betas, str) or len(betas) != 2:
        raise TypeError(f"betas must be two numbers, got {betas!r}")
    for beta in betas:
        if is_truth(beta) or not isinstance(beta, numbers.Real):
            raise TypeError(f"betas must be numbers, got {beta!r}")
        if not 0 <= float(beta) < 1:
            raise ValueError(f"betas must be from 0 on and below 1, got {beta}")
    return float(betas[0]), float(betas[1])


def _check_number(name: str, value: Any) -> None:
    """Require a positive, finite number; weight decay may be zero and the maximum gradient norm infinite."""
    if name in ("width", "batch_size"):
        check_count(name, value)
    elif is_truth(value) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {value!r}")
    elif isinstance(value, int) and value >= 2**1023:
        raise ValueError(f"{name} must be a number that float64 can hold, got {value.bit_length()} bits")
    elif not (value >= 0 if name == "weight_decay" else value > 0) or (value == math.inf and name != "clip"):
        least = "0 or more" if name == "weight_decay" else "positive"
        raise ValueError(f"{name} must be {least}{'' if name == 'clip' else ' and finite'}, got {value}")


PAPER, USUAL = Settings(), Watch()  # the defaults
