"""Ensembles larger than one batch: chunks of models, fanned out through joblib, each saved when it is done."""

from collections.abc import Sequence
from pathlib import Path

import torch
from joblib import Parallel, delayed
from torch import Tensor

from attnopt.checks import check_count
from attnopt.clustering.training.loop import Training, join, per_model, read_arrays, train, write_arrays

PER_MODEL = ("width", "batch_size", "learning_rate", "mlp_discount", "weight_decay", "clip")


def ensemble(
    seeds: Sequence[int], folder: Path | str | None = None, *, chunk: int = 50, jobs: int = -1, **settings
) -> Training:
    """Train one model a seed, some at a time, on all cores; a chunk that was finished before is read, not trained again.

    Args:
        seeds: M of them.
        folder: where each finished chunk is saved at once and a running one leaves its checkpoints; nothing is saved unless
            given. Chunks that other settings wrote are refused.
        chunk: models a task.
        jobs: tasks at a time, joblib's ``n_jobs``; ``joblib.parallel_config(backend="dask")`` moves them elsewhere.
        settings: as for `train`.

    Returns:
        As from `train`: the numbers do not depend on ``chunk`` or ``jobs``.

    Raises:
        TypeError: if a number is not an integer.
        ValueError: as `train`, or if the folder holds chunks of other settings.
    """
    seeds = list(seeds)
    check_count("chunk", chunk)
    settings = {name: per_model(name, value, len(seeds)) if name in PER_MODEL else value for name, value in settings.items()}
    tasks = []
    for at in range(0, len(seeds), chunk):
        part = slice(at, at + chunk)
        own = {name: value[part] if name in PER_MODEL else value for name, value in settings.items()}
        if settings.get("start") is not None:
            own["start"] = {name: value[part] for name, value in settings["start"].items()}
        tasks.append(delayed(_chunk)(seeds[part], folder and Path(folder) / f"chunk_{at:05d}.npz", own))
    return join(Parallel(n_jobs=jobs)(tasks))


def _chunk(seeds: list[int], file: Path | None, settings: dict) -> Training:
    """One task: read its result, or train on one thread and save it."""
    torch.set_num_threads(1)
    if file is None:
        return train(seeds, **settings)
    said = {name: value for name, value in settings.items() if name not in ("start", "checkpoint_every", "progress")}
    description = repr((seeds, sorted(said.items()), settings.get("start") is not None))
    if file.exists():
        training, wrote = load_training(file), read_arrays(file)[1]
        if wrote != description:
            raise ValueError(f"folder holds {file}, which other settings wrote: remove it, or name another folder")
        return training
    file.parent.mkdir(parents=True, exist_ok=True)
    checkpoint = file.with_suffix(".checkpoint")
    training = train(seeds, checkpoint=checkpoint, **settings)
    save_training(file, training, description)
    for left in file.parent.glob(f"{checkpoint.name}.*"):
        left.unlink()
    return training


def save_training(file: Path | str, training: Training, description: str = "") -> None:
    """Write a training to an npz file, in one move."""
    arrays = {f"params/{name}": value for name, value in training.params.items()}
    arrays |= {f"history/{name}": value for name, value in training.history.items()}
    for epoch, params in training.snapshots.items():
        arrays |= {f"snapshots/{epoch}/{name}": value for name, value in params.items()}
    write_arrays(Path(file), {name: value.numpy() for name, value in arrays.items()}, description)


def load_training(file: Path | str) -> Training:
    """What `save_training` wrote."""
    arrays, _ = read_arrays(Path(file))
    params, history, snapshots = {}, {}, {}
    for path, array in arrays.items():
        kind, *rest = path.split("/")
        value: Tensor = torch.from_numpy(array)
        if kind == "snapshots":
            snapshots.setdefault(int(rest[0]), {})[rest[1]] = value
        else:
            (params if kind == "params" else history)[rest[0]] = value
    return Training(params, history, snapshots)
