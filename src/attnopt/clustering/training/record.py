"""What a training comes to: its models and their history, in memory and in files."""

import hashlib
import itertools
import json
import zlib
from dataclasses import asdict, fields
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from attnopt.clustering.files import read_arrays, write_arrays
from attnopt.clustering.model import Models
from attnopt.clustering.task import Task
from attnopt.clustering.training.backward import SPREAD
from attnopt.clustering.training.draws import training_data
from attnopt.clustering.training.settings import Settings, Watch

LATER = {"betas": [0.9, 0.999], "eps": 1e-8}  # settings of which older files say nothing, and what they were then


class Stop(NamedTuple):
    """Where a model's training ended early: the last epoch that it completed, whose weights it keeps, and why."""

    epoch: int
    reason: str


class Training(NamedTuple):
    """An ensemble's training: what it came to, and how.

    Args:
        models: the trained ones.
        history: each of shape (evaluations, M): ``loss`` and ``accuracy`` on the training set, ``loss_unseen`` and
            ``accuracy_unseen`` on the other sequences (nan if there is none), ``accuracy_all`` on all, ``suffix`` and
            ``permutation``, as from `invariance`, and ``gradient_…`` for every parameter, the root mean square over the
            steps since the last evaluation of the norm of the mini-batches' gradient (before clipping; 0 before the first
            step); and ``epoch``, of shape (evaluations,). With more than 8192 sequences there are no invariances, and a
            sample of 4096, the same for all models, stands for all and for the unseen. A label counts as predicted if its
            logit exceeds all others.
        snapshots: models after chosen epochs.
        stopped: for each model that diverged, by its index, the last epoch that it completed and why it stopped. Its
            weights, in later snapshots too, are those after that epoch; its later history is nan.
    """

    models: Models
    history: dict[str, Tensor]
    snapshots: dict[int, Models]
    stopped: dict[int, Stop] = {}  # noqa: RUF012

    def __repr__(self) -> str:
        said = f"{self.models}, {len(self.history['epoch'])} evaluations, snapshots of {list(self.snapshots)}"
        return f"Training({said}{f', {list(self.stopped)} stopped' if self.stopped else ''})"


def stop_of(epoch: int, spread: float) -> Stop:
    """A stop with the reason that follows from how far the scores spread."""
    if spread > SPREAD:
        return Stop(epoch, f"its attention scores came to spread over {spread:.3g}, beyond {SPREAD:.0f}")
    return Stop(epoch, "its weights, gradients or losses were no longer finite")


def join(parts: list[Training], order: Tensor | None = None) -> Training:
    """The trainings of several groups of models as one, in the order given."""
    order = torch.arange(sum(len(part.models) for part in parts)) if order is None else order
    begins = itertools.accumulate((len(part.models) for part in parts), initial=0)
    ends = {begin + at: stop for begin, part in zip(begins, parts, strict=False) for at, stop in part.stopped.items()}
    stopped = {new: ends[old] for new, old in enumerate(order.tolist()) if old in ends}
    names = [name for name in parts[0].history if name != "epoch"]
    history = {name: torch.cat([part.history[name] for part in parts], 1)[:, order] for name in names}
    history["epoch"] = parts[0].history["epoch"]
    kept = {epoch: Models.join([part.snapshots[epoch] for part in parts])[order] for epoch in parts[0].snapshots}
    return Training(Models.join([part.models for part in parts])[order], history, kept, stopped)


def save_training(file: Path | str, training: Training, description: str = "") -> None:
    """Write a training to an npz file, in one move.

    Args:
        file: where, in a folder that is made if there is none.
        training: as from `train`.
        description: of where it comes from, for `load_training` to compare.
    """
    arrays = {f"history/{name}": value for name, value in training.history.items()}
    for at, models in {"end": training.models, **training.snapshots}.items():
        arrays |= {f"models/{at}/{name}": value for name, value in models.weights.items()}
    about = json.dumps({"norm": training.models.norm, "description": description, "stopped": training.stopped})
    write_arrays(Path(file), {name: value.numpy() for name, value in arrays.items()}, about)


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
    arrays, about = read_arrays(Path(file))
    if not about.startswith("{"):
        raise ValueError(f"{file} holds no training, but what another function wrote")
    about = json.loads(about)
    if description is not None:
        check_description(file, about["description"], description)
    history, kept = {}, {}
    for path, array in arrays.items():
        kind, *at, name = path.split("/")
        place = history if kind == "history" else kept.setdefault(at[0], {})
        place[name] = torch.from_numpy(array)
    models = {at: Models(weights, about["norm"]) for at, weights in kept.items()}
    stopped = {int(model): Stop(*said) for model, said in about.get("stopped", {}).items()}
    return Training(models.pop("end"), history, {int(epoch): snapshot for epoch, snapshot in models.items()}, stopped)


def describe(seeds: list[int], settings: Settings, watch: Watch, start: Models | None, dtype: object, compiled: bool) -> str:
    """All that decides what a training comes to, for files to bear.

    Training reads of a task its sizes, the training data, and what models are judged on. Where these data are not those of
    `Task`, the description bears their digest: so it tells every two tasks apart that some training could tell apart, by
    whatever classes or values they were made, and files of `Task` bear what they always did.
    """
    task, chosen = settings.task, {field.name: getattr(settings, field.name) for field in fields(Settings)}
    chosen["task"] = {"p": task.p, "length": task.length, "k": task.k}
    plain, own = (_digest(one, seeds, settings.n_train) for one in (Task(task.p, task.length, task.k), task))
    chosen["task"] |= {} if own == plain else {"data": own}
    said = {"seeds": seeds, "settings": chosen, "watch": asdict(watch), "dtype": str(dtype)}
    said |= {"start": None if start is None else checksum(start)} | ({"compiled": True} if compiled else {})
    return json.dumps(said)


def _digest(task: Task, seeds: list[int], n_train: int) -> str:
    """Of a task's training data and of what models are judged on."""
    parts = *training_data(seeds, task, n_train), *task.judged()
    return hashlib.sha256(b"".join(part.cpu().to(torch.int32).numpy().tobytes() for part in parts)).hexdigest()


def check_description(file: Path, found: str, wanted: str) -> None:
    """Require what a file bears to be what is asked for.

    Raises:
        ValueError: if it is not.
    """
    if _complete(found) != _complete(wanted):
        raise ValueError(f"{file} was written by other settings: remove it, or name another place")


def _complete(description: str) -> str:
    """A description with what is said of settings that there have not always been."""
    if not description.startswith("{"):
        return description
    said = json.loads(description)
    return json.dumps(said | {"settings": LATER | said.get("settings", {})}, sort_keys=True)


def checksum(models: Models) -> int:
    """A number that tells ensembles apart."""
    return zlib.crc32(b"".join(value.cpu().contiguous().numpy().tobytes() for value in models.weights.values()))
