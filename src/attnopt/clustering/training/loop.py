"""Training many models side by side: one call for an ensemble or a grid of settings."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch

from attnopt.checks import check_count
from attnopt.clustering.model import Norm, Params, check_params, normalise
from attnopt.clustering.task import check_task
from attnopt.clustering.training.draws import check_seeds, initial_models, per_model
from attnopt.clustering.training.group import Group
from attnopt.clustering.training.record import Training, join


def train(
    seeds: Sequence[int],
    *,
    p: int = 2,
    length: int = 12,
    k: int = 5,
    vocabulary: int | None = None,
    dim: int = 2,
    width: int | Sequence[int] = 32,
    n_train: int = 2048,
    epochs: int = 1000,
    batch_size: int | Sequence[int] = 32,
    learning_rate: float | Sequence[float] = 3e-3,
    mlp_discount: float | Sequence[float] = 1.0,
    weight_decay: float | Sequence[float] = 0.0,
    clip: float | Sequence[float] = math.inf,
    norm: Norm = "rms",
    start: Params | None = None,
    evaluate_every: int = 1,
    snapshots: Iterable[int] = (),
    checkpoint: Path | str | None = None,
    checkpoint_every: int = 100,
    progress: bool = False,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Training:
    """Train one model a seed, all at once, with Adam on shuffled mini-batches.

    A model's initial weights and data follow from its seed alone; the order of the mini-batches is drawn anew each epoch,
    the same for all models, whose data are independent. Who else is in the ensemble does not change a model's numbers: not
    a bit of them at the paper's sizes, on the CPU; at other sizes products are rounded by how a model's matrices happen to
    be aligned in memory. Each of width, batch_size, learning_rate, mlp_discount, weight_decay and clip is one number or one
    a model, so that a grid of settings is one call. One thread of the CPU is used; `ensemble` uses all cores. A model takes
    less than 1 MB of memory at the defaults.

    Args:
        seeds: M of them.
        p: the task's vocabulary: sequences are drawn from the tokens 0 … p - 1.
        length: L, tokens a sequence.
        k: how many of them count.
        vocabulary: tokens with an embedding, p unless given; those from p on are trained as labels that are never right.
        dim: d, the width of the embeddings.
        width: neurons of the feed-forward layer.
        n_train: training sequences of each model.
        epochs: passes through the training set.
        batch_size: sequences a step; the last batch of an epoch may be smaller.
        learning_rate: Adam's.
        mlp_discount: divides the learning rate of the feed-forward layer.
        weight_decay: shrinks weights by this times the learning rate each step, apart from Adam's step.
        clip: longest gradient of a step; longer ones are scaled down to it.
        norm: the models' normalisation.
        start: models to go on from, with a fresh Adam, instead of new ones; width, dim and vocabulary are then theirs.
        evaluate_every: epochs between evaluations; before the first and after the last epoch there is always one.
        snapshots: epochs after which the models are kept; 0 is the start.
        checkpoint: start of the names of files, one a batch size, written now and then, from which the same call,
            interrupted, goes on to the same numbers.
        checkpoint_every: epochs between writings.
        progress: show a progress bar on stderr.
        device: where to compute.
        dtype: of the weights.

    Returns:
        What `Training` says, on the CPU.

    Raises:
        TypeError: if an argument is not of its kind.
        ValueError: if a number is out of range, a setting has neither one nor M values, ``start`` does not fit, or the
            checkpoint cannot be read or belongs to other settings.

    Source: Odonnat, Bouaziz, Cabannes (2025), Appendix A; defaults are those of their released code.
    """
    seeds = check_seeds(seeds)
    p, length, k = check_task(p, length, k)
    settings = {
        "width": per_model("width", width, len(seeds)),
        "batch_size": per_model("batch_size", batch_size, len(seeds)),
        "learning_rate": per_model("learning_rate", learning_rate, len(seeds)),
        "mlp_discount": per_model("mlp_discount", mlp_discount, len(seeds)),
        "weight_decay": per_model("weight_decay", weight_decay, len(seeds)),
        "clip": per_model("clip", clip, len(seeds)),
    }
    check_settings(settings)
    if not isinstance(snapshots, Iterable):
        raise TypeError(f"snapshots must be epochs, got {snapshots!r}")
    kept = sorted({check_index("snapshots", epoch) for epoch in snapshots})
    common = {
        "p": p,
        "length": length,
        "k": k,
        "n_train": check_count("n_train", n_train),
        "epochs": check_index("epochs", epochs),
        "norm": norm,
        "evaluate_every": check_count("evaluate_every", evaluate_every),
        "snapshots": kept,
        "dtype": str(dtype),
    }
    checkpoint_every = check_count("checkpoint_every", checkpoint_every)
    if kept and kept[-1] > epochs:
        raise ValueError(f"snapshots must be epochs from 0 to {epochs}, got {kept[-1]}")
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype}")
    normalise(torch.ones(1), norm)  # refuses an unknown one
    if start is None:
        vocabulary = p if vocabulary is None else check_count("vocabulary", vocabulary)
        if vocabulary < p:
            raise ValueError(f"vocabulary must be at least p, {p}, got {vocabulary}")
        start = initial_models(seeds, vocabulary, length, dim, settings["width"], dtype)
    check_start(start, len(seeds), p, length)
    start = {name: value.detach().to(device, dtype) for name, value in start.items()}
    parts, order = [], []
    sizes = settings.pop("batch_size")
    for size in sorted(set(sizes)):  # models that share a batch size step together
        members = [at for at, other in enumerate(sizes) if other == size]
        group = Group(
            [seeds[at] for at in members],
            {name: [values[at] for at in members] for name, values in settings.items()},
            {name: value[members] for name, value in start.items()},
            common | {"batch_size": size},
        )
        file = Path(f"{checkpoint}.{size}.npz") if checkpoint else None
        parts.append(group.run(file, checkpoint_every, progress))
        order += members
    return join(parts, torch.tensor(order).argsort())


def check_settings(settings: dict[str, list]) -> None:
    """Require positive, finite numbers; weight decay may be zero and the longest gradient infinite.

    Raises:
        TypeError: if a value is not a number, or a width or a batch size not an integer.
        ValueError: if a number is out of range.
    """
    for name, values in settings.items():
        for value in values:
            if name in ("width", "batch_size"):
                check_count(name, value)
            elif not isinstance(value, int | float):
                raise TypeError(f"{name} must be a number, got {value!r}")
            elif not (value >= 0 if name == "weight_decay" else value > 0) or (value == math.inf and name != "clip"):
                least = "0 or more" if name == "weight_decay" else "positive"
                raise ValueError(f"{name} must be {least}{'' if name == 'clip' else ' and finite'}, got {value}")


def check_index(name: str, value: int) -> int:
    """Require an integer that is 0 or more.

    Raises:
        TypeError: if it is not an integer.
        ValueError: if it is negative.
    """
    if not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < 0:
        raise ValueError(f"{name} must be 0 or more, got {value}")
    return int(value)


def check_start(start: Params, models: int, p: int, length: int) -> None:
    """Require models with biases that fit the task, one a seed.

    Raises:
        TypeError: if they are not a dict.
        ValueError: if they do not fit.
    """
    if not isinstance(start, dict):
        raise TypeError(f"start must be a dict as from initial_models, got {type(start).__name__}")
    check_params(start)
    if len(start["token"]) != models or "receptor_biases" not in start or "assembler_bias" not in start:
        raise ValueError(f"start must hold one model with biases a seed, {models}, got {len(start['token'])}")
    if start["token"].shape[1] < p or start["position"].shape[1] != length:
        raise ValueError(
            f"start must have at least {p} tokens and {length} positions, got {start['token'].shape[1]} and "
            f"{start['position'].shape[1]}"
        )
