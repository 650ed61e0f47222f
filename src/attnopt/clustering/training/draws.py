"""What follows from a seed: a model as it starts, and its training data."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from attnopt.checks import check_count, check_dtype
from attnopt.clustering.model import Params, init_model
from attnopt.clustering.task import modular_addition


def initial_models(
    seeds: Sequence[int],
    vocabulary: int = 2,
    length: int = 12,
    dim: int = 2,
    width: int | Sequence[int] = 32,
    dtype: torch.dtype = torch.float32,
) -> Params:
    """One model a seed, initialised by `init_model` with biases; a narrower model has zero neurons, which stay zero.

    Args:
        seeds: M of them.
        vocabulary: tokens with an embedding.
        length: L, tokens a sequence.
        dim: d, the width of the embeddings.
        width: neurons of the feed-forward layer, one number or one a model.
        dtype: of the weights; they are drawn in float64.

    Raises:
        TypeError: if a number is not an integer or ``dtype`` not that of real numbers.
        ValueError: if there is no seed, one is out of range, widths are neither one nor M, or a number is too small.
    """
    seeds, vocabulary = check_seeds(seeds), check_count("vocabulary", vocabulary, 2)
    check_dtype("dtype", dtype)
    widths = [check_count("width", value) for value in per_model("width", width, len(seeds))]
    widest, models = max(widths), []
    for seed, neurons in zip(seeds, widths, strict=True):
        generator = torch.Generator().manual_seed(seed)
        model = init_model(1, vocabulary, length, dim, neurons, generator=generator, biases=True)
        for name, axis in (("receptors", 1), ("assemblers", 2), ("receptor_biases", 1)):
            shape = list(model[name].shape)
            shape[axis] = widest - shape[axis]
            model[name] = torch.cat([model[name], model[name].new_zeros(shape)], axis)
        models.append(model)
    return {name: torch.cat([model[name] for model in models]).to(dtype) for name in models[0]}


def training_data(seeds: Sequence[int], p: int, length: int, k: int, n_train: int = 2048) -> tuple[Tensor, Tensor]:
    """The sequences (M, n, L) and labels (M, n) that the models of these seeds are trained on, drawn with replacement.

    The numbers drawn are those that a model's weights begin with, the generator being the same: weights read the high bits
    of its numbers and tokens the remainder after division by p.

    Args:
        seeds: M of them.
        p: size of the vocabulary.
        length: L, tokens a sequence.
        k: how many of them count.
        n_train: sequences of each model.

    Raises:
        TypeError: if a number is not an integer.
        ValueError: if there is no seed or a number is out of range.
    """
    check_count("n_train", n_train)
    generators = [torch.Generator().manual_seed(seed) for seed in check_seeds(seeds)]
    draws = [modular_addition(p, length, k, n_train, generator) for generator in generators]
    return torch.stack([tokens for tokens, _ in draws]), torch.stack([targets for _, targets in draws])


def per_model(name: str, value: float | Sequence[float], models: int) -> list:
    """One value a model, from one for all or a sequence of them.

    Raises:
        ValueError: if a sequence has another number of values.
    """
    value = value.tolist() if isinstance(value, np.ndarray | np.generic | Tensor) else value
    values = list(value) if isinstance(value, Sequence) else [value] * models
    if len(values) != models:
        raise ValueError(f"{name} must be one value or one a model, {models}, got {len(values)}")
    return values


def check_seeds(seeds: Sequence[int]) -> list[int]:
    """Require integers from 0 to 2³² - 1, at least one.

    Raises:
        TypeError: if one is not an integer.
        ValueError: if there is none, or one is out of range.
    """
    seeds = seeds.tolist() if isinstance(seeds, np.ndarray | Tensor) else seeds
    if not isinstance(seeds, Sequence) or not all(isinstance(seed, int | np.integer) for seed in seeds):
        raise TypeError(f"seeds must be a sequence of integers, got {seeds!r}")
    if not seeds or not all(0 <= seed < 2**32 for seed in seeds):
        raise ValueError(f"seeds must be one or more integers in 0 … 2³² - 1, got {seeds!r}")
    return [int(seed) for seed in seeds]
