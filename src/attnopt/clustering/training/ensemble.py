"""Ensembles larger than one batch: chunks of models, fanned out through joblib, each saved when it is done."""

from collections.abc import Sequence
from pathlib import Path

from joblib import Parallel, delayed

from attnopt.checks import check_count
from attnopt.clustering.training.draws import check_seeds, per_model
from attnopt.clustering.training.loop import train
from attnopt.clustering.training.record import Training, checksum, join, load_training, save_training

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
        jobs: tasks at a time, joblib's ``n_jobs``; its ``parallel_config`` moves them to a cluster.
        settings: as for `train`, but for its checkpoint.

    Returns:
        As from `train`, and the same numbers whatever ``chunk`` and ``jobs`` are.

    Raises:
        TypeError: as `train`.
        ValueError: as `train`, or if the folder holds chunks that cannot be read or that other settings wrote.
    """
    seeds = check_seeds(seeds)
    check_count("chunk", chunk)
    if "checkpoint" in settings:
        raise TypeError("checkpoint is not for ensembles: name a folder")
    settings = {name: per_model(name, value, len(seeds)) if name in PER_MODEL else value for name, value in settings.items()}
    if "snapshots" in settings:
        settings["snapshots"] = sorted(set(settings["snapshots"]))
    start = settings.pop("start", None)
    if start is not None and any(len(value) != len(seeds) for value in start.values()):
        raise ValueError(f"start must hold one model a seed, {len(seeds)}, got {[len(value) for value in start.values()]}")
    tasks = []
    for at in range(0, len(seeds), chunk):
        part = slice(at, at + chunk)
        own = {name: value[part] if name in PER_MODEL else value for name, value in settings.items()}
        if start is not None:
            own["start"] = {name: value[part] for name, value in start.items()}
        tasks.append(delayed(_chunk)(seeds[part], folder and Path(folder) / f"chunk_{at:05d}.npz", own))
    return join(Parallel(n_jobs=jobs)(tasks))


def _chunk(seeds: list[int], file: Path | None, settings: dict) -> Training:
    """One task: read its result, or train and save it."""
    if file is None:
        return train(seeds, **settings)
    said = {name: value for name, value in settings.items() if name not in ("start", "checkpoint_every", "progress")}
    description = repr((seeds, sorted(said.items()), "start" in settings and checksum(settings["start"])))
    if file.exists():
        return load_training(file, description)
    checkpoint = file.with_suffix(".checkpoint")
    training = train(seeds, checkpoint=checkpoint, **settings)
    save_training(file, training, description)
    for left in file.parent.glob(f"{checkpoint.name}.*"):
        left.unlink()
    return training
