"""The trained models of Part V, in half precision."""

from pathlib import Path

import numpy as np
import torch

from attnopt.checks import check_count, check_word
from attnopt.standard.transformer import Transformer

REGRESSORS = Path(__file__).parents[1] / "data" / "regressors.npz"


def load_regressor(setting: str, seed: int) -> Transformer:
    """A transformer with 4 heads that was trained on prompts of 16 labeled points and a query, float32.

    Args:
        setting: of ``experiments/steps_in_prompt.py``, such as "base".
        seed: of the run.

    Source: trained by ``experiments/steps_in_prompt.py``.
    """
    with np.load(REGRESSORS, allow_pickle=False) as arrays:
        runs = [name.split("/")[:2] for name in arrays if name.endswith("/position")]
        check_word("setting", setting, sorted({run[0] for run in runs}))
        count = sum(run[0] == setting for run in runs)
        if check_count("seed", seed, 0) >= count:
            raise ValueError(f"seed must be one of 0 … {count - 1}, got {seed}")
        start = f"{setting}/{int(seed)}/"
        weights = {name[len(start) :]: torch.from_numpy(arrays[name]).float() for name in arrays if name.startswith(start)}
    positions, width = weights["position"].shape
    layers = sum(name.endswith("qkv.weight") for name in weights)
    model = Transformer(weights["embedding.weight"].shape[1], 1, positions, width, layers)
    model.load_state_dict(weights)
    return model.eval().requires_grad_(False)
