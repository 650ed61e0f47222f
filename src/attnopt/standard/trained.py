"""The trained models of Part V, stored in half precision."""

from pathlib import Path

import numpy as np
import torch

from attnopt.checks import check_count, check_word
from attnopt.standard.transformer import Transformer

DATA = Path(__file__).parents[1] / "data"
REGRESSORS, COUNTERS, GUESSERS = (DATA / f"{name}.npz" for name in ("regressors", "counters", "guessers"))


def load_regressor(setting: str, seed: int) -> Transformer:
    """A transformer with 4 heads, trained on prompts of 16 labeled points and a query, in float32.

    Args:
        setting: "base" or "skewed", settings of ``experiments/steps_in_prompt.py``.
        seed: the seed of the run.

    Source: trained by ``experiments/steps_in_prompt.py``.
    """
    return _loaded(REGRESSORS, setting, seed)


def load_counter(setting: str, seed: int) -> Transformer:
    """A transformer with 4 heads, trained on sparse parity, in float32.

    Args:
        setting: must be "base", the only setting of ``experiments/counting.py`` whose models come with the package.
        seed: the seed of the run.

    Source: trained by ``experiments/counting.py``.
    """
    return _loaded(COUNTERS, setting, seed)


def load_guesser(setting: str, seed: int) -> Transformer:
    """A transformer with 4 heads, trained to predict a masked word, in float32.

    Args:
        setting: must be "base", the only setting of ``experiments/guessed_labels.py`` whose models come with the package.
        seed: the seed of the run.

    Source: trained by ``experiments/guessed_labels.py``.
    """
    return _loaded(GUESSERS, setting, seed)


def _loaded(path: Path, setting: str, seed: int) -> Transformer:
    """The model of one run in a file of weights."""
    with np.load(path, allow_pickle=False) as arrays:
        runs = [name.split("/")[:2] for name in arrays if name.endswith("/position")]
        check_word("setting", setting, sorted({run[0] for run in runs}))
        seeds = sorted(int(run[1]) for run in runs if run[0] == setting)
        if check_count("seed", seed, 0) not in seeds:
            raise ValueError(f"seed must be one of {seeds[0]} … {seeds[-1]}, got {seed}")
        start = f"{setting}/{int(seed)}/"
        weights = {name[len(start) :]: torch.from_numpy(arrays[name]).float() for name in arrays if name.startswith(start)}
    positions, width = weights["position"].shape
    layers = sum(name.endswith("qkv.weight") for name in weights)
    model = Transformer(weights["embedding.weight"].shape[1], weights["readout.1.weight"].shape[0], positions, width, layers)
    model.load_state_dict(weights)
    return model.eval().requires_grad_(False)
