"""Ensembles larger than one batch: chunks of models, fanned out through joblib, each saved when it is done."""

from collections.abc import Sequence
from pathlib import Path

import torch
from joblib import Parallel, delayed

from attnopt.checks import check_count
from attnopt.clustering.model import Models
from attnopt.clustering.training.draws import check_seeds
from attnopt.clustering.training.record import Training, describe, join, load_training, save_training
from attnopt.clustering.training.settings import EACH_EPOCH, PAPER, Settings, Watch
from attnopt.clustering.training.trainer import check_compiled, check_plan, check_start, train_quietly, warn_of_stopped


def ensemble(
    seeds: Sequence[int],
    settings: Settings = PAPER,
    folder: Path | str | None = None,
    *,
    watch: Watch = EACH_EPOCH,
    start: Models | None = None,
    chunk: int = 50,
    jobs: int = -1,
    checkpoint_every: int = 100,
    progress: bool = False,
    dtype: torch.dtype = torch.float32,
    compiled: bool = False,
) -> Training:
    """Train one model a seed, some at a time, on all cores; a chunk that was finished before is read, not trained again.

    Args:
        seeds: M of them.
        settings: as for `train`.
        folder: where each finished chunk is saved at once and a running one leaves its checkpoints; nothing is saved unless
            given. Chunks of other settings, or of a task with other labels, are refused.
        watch: what is recorded.
        start: models to go on from, as for `train`.
        chunk: models a task.
        jobs: tasks at a time, joblib's ``n_jobs``; its ``parallel_config`` moves them to a cluster.
        checkpoint_every: epochs between writings.
        progress: show progress bars on stderr.
        dtype: of the weights.
        compiled: take the steps in C, as for `train`.

    Returns:
        As from `train`, and the same numbers whatever ``chunk`` and ``jobs`` are, as far as `train` says.

    Raises:
        TypeError: as `train`.
        ValueError: as `train`, or if the folder holds chunks that cannot be read or that other settings wrote.
        RuntimeError: as `train`.

    Warns:
        RuntimeWarning: as `train`, also of models in chunks that are read.
    """
    seeds = check_seeds(seeds)
    check_count("chunk", chunk)
    check_plan(settings, watch)
    check_compiled(compiled, "cpu", dtype)
    settings = settings.each(len(seeds))
    if start is not None:
        check_start(start, settings, len(seeds))
    how = {"checkpoint_every": checkpoint_every, "progress": progress, "dtype": dtype, "compiled": compiled}
    tasks = []
    for at in range(0, len(seeds), chunk):
        part = range(at, min(at + chunk, len(seeds)))
        file = Path(folder) / f"chunk_{at:05d}.npz" if folder else None
        begin = None if start is None else start[list(part)]
        tasks.append(delayed(_chunk)(seeds[at : at + chunk], settings.of(part), watch, begin, file, how))
    training = join(Parallel(n_jobs=jobs)(tasks))
    warn_of_stopped(training, seeds, settings)
    return training


def _chunk(
    seeds: list[int], settings: Settings, watch: Watch, start: Models | None, file: Path | None, how: dict
) -> Training:
    """One task: read its result, or train and save it."""
    if file is None:
        return train_quietly(seeds, settings, watch, start=start, checkpoint=None, **how)
    description = describe(seeds, settings, watch, start, how["dtype"], how["compiled"])
    if file.exists():
        return load_training(file, description)
    checkpoint = file.with_suffix(".checkpoint")
    training = train_quietly(seeds, settings, watch, start=start, checkpoint=checkpoint, **how)
    save_training(file, training, description)
    for left in file.parent.glob(f"{checkpoint.name}.*"):
        left.unlink()
    return training
