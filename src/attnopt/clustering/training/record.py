"""What a training comes to: its models and their history, in memory and in files."""

import os
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnopt.clustering.model import Params


class Training(NamedTuple):
    """An ensemble's training: what it came to, and how.

    Args:
        params: the trained models, as from `init_model`.
        history: each of shape (evaluations, M): ``loss`` and ``accuracy`` on the training set, ``loss_unseen`` and
            ``accuracy_unseen`` on the other sequences (nan if there is none), ``accuracy_all`` on all, ``suffix`` and
            ``permutation``, as from `invariance`, and ``gradient_…`` for every parameter, the root mean square over the
            steps since the last evaluation of the norm of the mini-batches' gradient (before clipping; 0 before the first
            step); and ``epoch``, of shape (evaluations,). With more than 8192 sequences there are no invariances, and a
            sample of 4096, the same for all models, stands for all and for the unseen. A label counts as predicted if its
            logit exceeds all others.
        snapshots: models after chosen epochs.
    """

    params: Params
    history: dict[str, Tensor]
    snapshots: dict[int, Params]


def join(parts: list[Training], order: Tensor | None = None) -> Training:
    """The trainings of several groups of models as one, in the order given."""
    order = slice(None) if order is None else order

    def merge(dicts: list[dict[str, Tensor]], axis: int) -> dict[str, Tensor]:
        joined = {name: torch.cat([part[name] for part in dicts], axis) for name in dicts[0] if name != "epoch"}
        return {name: value.movedim(axis, 0)[order].movedim(0, axis) for name, value in joined.items()}

    history = merge([part.history for part in parts], 1) | {"epoch": parts[0].history["epoch"]}
    kept = {epoch: merge([part.snapshots[epoch] for part in parts], 0) for epoch in parts[0].snapshots}
    return Training(merge([part.params for part in parts], 0), history, kept)


def save_training(file: Path | str, training: Training, description: str = "") -> None:
    """Write a training to an npz file, in one move.

    Args:
        file: where, in a folder that is made if there is none.
        training: as from `train`.
        description: of where it comes from, for `load_training` to compare.
    """
    arrays = {f"params/{name}": value for name, value in training.params.items()}
    arrays |= {f"history/{name}": value for name, value in training.history.items()}
    for epoch, params in training.snapshots.items():
        arrays |= {f"snapshots/{epoch}/{name}": value for name, value in params.items()}
    write_arrays(Path(file), {name: value.numpy() for name, value in arrays.items()}, description)


def load_training(file: Path | str, description: str | None = None) -> Training:
    """What `save_training` wrote.

    Args:
        file: which.
        description: that it must bear; any unless given.

    Returns:
        The training, the same to the last bit.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it cannot be read, or bears another description than the one given.
    """
    arrays = read_arrays(Path(file), description)
    params, history, snapshots = {}, {}, {}
    for path, array in arrays.items():
        kind, *rest = path.split("/")
        value: Tensor = torch.from_numpy(array)
        if kind == "snapshots":
            snapshots.setdefault(int(rest[0]), {})[rest[1]] = value
        else:
            (params if kind == "params" else history)[rest[0]] = value
    return Training(params, history, snapshots)


def write_arrays(file: Path, arrays: dict[str, np.ndarray], description: str) -> None:
    """Write named arrays and a description to an npz file, in one move: nobody ever sees half of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}.partial")
    with partial.open("wb") as stream:
        np.savez(stream, description=np.frombuffer(description.encode(), np.uint8), **arrays)
    partial.replace(file)


def read_arrays(file: Path, description: str | None) -> dict[str, np.ndarray]:
    """What `write_arrays` wrote, with this description or, if none is given, with any.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it cannot be read, or bears another description.
    """
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        found = arrays.pop("description").tobytes().decode()
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError) as error:
        raise ValueError(f"{file} cannot be read ({error}): remove it and start again") from error
    if description is not None and found != description:
        raise ValueError(f"{file} was written by other settings: remove it, or name another place")
    return arrays


def checksum(params: Params) -> int:
    """A number that tells ensembles apart."""
    return zlib.crc32(b"".join(value.cpu().contiguous().numpy().tobytes() for value in params.values()))
