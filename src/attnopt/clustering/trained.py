"""The 200 trained models of Part III, from seeds 0 to 199 with the paper's settings, stored with rounded weights."""

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnopt.checks import check_count
from attnopt.clustering.anatomy import level_means
from attnopt.clustering.interventions import in_parts, levels, right
from attnopt.clustering.invariance import variance_shares
from attnopt.clustering.model import Models
from attnopt.clustering.task import Task

DATA = Path(__file__).parents[1] / "data" / "trained_models.npz"
TASK, NORM = Task(), "rms"  # the models' task and norm
SHAPES = {  # of the weights of a model of that setting
    "token": (2, 2),
    "position": (12, 2),
    "query": (2,),
    "value": (2, 2),
    "receptors": (32, 2),
    "assemblers": (2, 32),
    "receptor_biases": (32,),
    "assembler_bias": (2,),
}
OVERVIEW = ("m", "accuracy", "held", "explained", "suffix", "permutation")
MANTISSA = 23  # bits that float32 has


def load_models() -> Models:
    """The final models of seeds 0 to 199 in float64, trained with Adam for 1000 epochs, with all settings those of `PAPER`.

    A model's weights are rounded to the fewest leading bits with which it still answers all 4096 sequences as before, has
    the same integers m (`Models.count`), and these explain the same share of variance to within 0.001. On another processor,
    the same seeds can give different models, because training magnifies rounding errors.

    Source: Odonnat, Bouaziz, Cabannes (2025), section 3; trained by ``experiments/trained_models.py``.
    """
    return _stored().map(Tensor.clone)  # so callers can change their copies


@functools.cache
def _stored() -> Models:
    with np.load(DATA, allow_pickle=False) as arrays:
        return Models({name: torch.from_numpy(unpacked(arrays[name])).double() for name in SHAPES}, NORM)


def load_model(seed: int) -> Models:
    """The final model of a seed, as an ensemble of one; see `load_models`.

    Args:
        seed: seed of the run, 0 … 199.
    """
    models = load_models()
    if check_count("seed", seed, 0) >= len(models):
        raise ValueError(f"seed must be one of 0 … {len(models) - 1}, got {seed}")
    return models[int(seed)]


def load_overview() -> dict[str, Tensor]:
    """Results for the models of `load_models`, stored so that they need not be computed again.

    Returns:
        A dict with ``m`` (200, 12), the integers of `Models.count`, and shares of shape (200,). These are ``accuracy`` over
        all sequences; ``held``, the accuracy with ξ replaced by its mean over the sequences with the same Σ m_t x_t;
        ``explained``, the share of the variance of ξ that the sum explains; and ``suffix`` and ``permutation``, the
        results of `invariance`. The last three are rounded to four decimals.

    Source: the chapter "Circuits in the wild".
    """
    with np.load(DATA, allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[f"overview/{name}"]) for name in OVERVIEW}


def overview(models: Models) -> dict[str, Tensor]:
    """Compute what `load_overview` returns from the weights."""

    def of_some(part: Models, _: int) -> dict[str, Tensor]:
        m, explained = part.count(TASK)
        tokens, targets = TASK.all()
        sequence = part.sequences(tokens)
        shares = {"explained": explained} | variance_shares(sequence, TASK)
        return {
            "m": m,
            "accuracy": right(part, sequence, targets),
            "held": right(part, level_means(sequence, levels(m, TASK)), targets),
        } | {name: value.mul(1e4).round().div(1e4) for name, value in shares.items()}

    return in_parts(models, of_some)


def shortened(values: Tensor, bits: Tensor | int) -> Tensor:
    """float32 numbers rounded to a number of bits after the leading one.

    Args:
        values: float32 numbers, shape (M, …).
        bits: number of bits for each model, shape (M,), or one for all; 0 … 23.
    """
    whole = values.numpy().view(np.uint32).astype(np.int64)
    drop = MANTISSA - np.broadcast_to(np.asarray(bits), len(values)).reshape(-1, *[1] * (values.ndim - 1))
    unit = np.int64(1) << drop
    return torch.from_numpy(((whole + unit // 2) // unit * unit).astype(np.uint32).view(np.float32))


def packed(values: Tensor) -> np.ndarray:
    """float32 numbers as bytes, with the leading bytes of all numbers first, so zeros are adjacent and compress well."""
    return np.moveaxis(values.numpy().astype(">f4")[..., None].view(np.uint8), -1, 0).copy()


def unpacked(planes: np.ndarray) -> np.ndarray:
    """The float32 numbers that `packed` turned into bytes."""
    return np.ascontiguousarray(np.moveaxis(planes, 0, -1)).view(">f4")[..., 0].astype(np.float32)


def save_models(path: Path, models: Models, provenance: dict[str, Any]) -> None:
    """Write float32 models and their provenance to a file."""
    arrays: dict[str, Any] = {name: packed(models.weights[name]) for name in SHAPES}
    arrays |= {f"overview/{name}": value.numpy() for name, value in overview(models.double()).items()}
    with path.open("wb") as stream:
        np.savez_compressed(stream, about=np.array(json.dumps({"provenance": provenance}, sort_keys=True)), **arrays)
