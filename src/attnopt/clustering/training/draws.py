"""What a seed determines: the initial weights of a model and its training data."""

from collections.abc import Sequence
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from attnopt.checks import check_count, check_dtype, check_integers, check_word, is_truth
from attnopt.clustering.model import Models
from attnopt.clustering.task import Task, check_task
from attnopt.clustering.training import laboratory
from attnopt.clustering.training.settings import PAPER, Draws, Settings


def initial_models(seeds: Sequence[int], settings: Settings = PAPER, dtype: torch.dtype = torch.float32) -> Models:
    """One randomly initialized model with biases per seed.

    Models narrower than the widest are padded with zero neurons, which stay zero.

    Args:
        seeds: seeds of the M models.
        settings: settings with the models' sizes, norm, and ``draws``.
        dtype: dtype of the weights, which are drawn in float64.
    """
    seeds = check_seeds(seeds)
    check_dtype("dtype", dtype)
    widths = settings.each(len(seeds)).width
    widest, models = max(widths), []
    sizes = settings.tokens, settings.task.length, settings.dim
    for seed, width in zip(seeds, widths, strict=True):
        if settings.draws == "laboratory":
            model = laboratory.random_model(seed, *sizes, width, settings.norm).weights
        else:
            generator = torch.Generator().manual_seed(seed)
            model = Models.random(1, *sizes, width, norm=settings.norm, generator=generator, biases=True).weights
        for name, axis in (("receptors", 1), ("assemblers", 2), ("receptor_biases", 1)):
            shape = list(model[name].shape)
            shape[axis] = widest - shape[axis]
            model[name] = torch.cat([model[name], model[name].new_zeros(shape)], axis)
        models.append(Models(model, settings.norm))
    return Models.join(models).map(lambda value: value.to(dtype))


def training_data(
    seeds: Sequence[int], task: Task, n_train: int = PAPER.n_train, draws: Draws = PAPER.draws
) -> tuple[Tensor, Tensor]:
    """The sequences (M, n, L) and labels (M, n) on which the models of these seeds are trained, drawn with replacement.

    With ``draws="torch"``, a model's weights and data come from the same random integers: a token is the remainder of such
    an integer modulo p, which hardly affects the weight.

    Args:
        seeds: seeds of the M models.
        task: task that draws and labels the sequences.
        n_train: number of sequences per model, n.
        draws: source of the random numbers, as in `Settings`.

    Raises:
        ValueError: if a subclass of `Task` does not draw ``n_train`` sequences.
    """
    check_count("n_train", n_train)
    check_task(task)
    check_word("draws", draws, get_args(Draws))
    if draws == "laboratory":
        pairs = [laboratory.sample(seed, task, n_train) for seed in check_seeds(seeds)]
    else:
        pairs = [task.sample(n_train, torch.Generator().manual_seed(seed)) for seed in check_seeds(seeds)]
    for tokens, targets in pairs:  # a subclass may draw its own
        check_integers("tokens of task.sample", tokens, task.p)
        check_integers("labels of task.sample", targets, task.p)
        if tokens.shape != (n_train, task.length) or targets.shape != (n_train,):
            raise ValueError(
                f"task.sample must give tokens ({n_train}, {task.length}) and labels ({n_train},), got "
                f"{tuple(tokens.shape)} and {tuple(targets.shape)}"
            )
    return torch.stack([tokens for tokens, _ in pairs]), torch.stack([targets.long() for _, targets in pairs])


def check_seeds(seeds: Sequence[int]) -> list[int]:
    """Require at least one integer, each from 0 to 2³² - 1."""
    seeds = seeds.tolist() if isinstance(seeds, np.ndarray | Tensor) else seeds
    if not isinstance(seeds, Sequence) or not all(
        isinstance(seed, int | np.integer) and not is_truth(seed) for seed in seeds
    ):
        raise TypeError(f"seeds must be a sequence of integers, got {seeds!r}")
    if not seeds or not all(0 <= seed < 2**32 for seed in seeds):
        raise ValueError(f"seeds must be one or more integers in 0 … 2³² - 1, got {seeds!r}")
    return [int(seed) for seed in seeds]
