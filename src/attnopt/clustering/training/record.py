"""Records of a training, in memory and in files: evaluations, snapshots, and the models that stopped early."""

import hashlib
import itertools
import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnopt.clustering.files import read_arrays, write_arrays
from attnopt.clustering.invariance import variance_shares
from attnopt.clustering.model import Models
from attnopt.clustering.task import LISTED, Task, indices
from attnopt.clustering.training.backward import SPREAD
from attnopt.clustering.training.compiled import Kernel
from attnopt.clustering.training.draws import training_data
from attnopt.clustering.training.settings import PER_MODEL, Settings, Watch
from attnopt.clustering.training.step import Plain, State, order_of

PROBE = 32  # training sequences whose losses must be finite after each epoch
LATER = {  # settings that older files do not mention, and their values then
    "settings": {"betas": [0.9, 0.999], "eps": 1e-8, "draws": "torch"},
    "watch": {"resumable": False},
}


ASKED = "each returned True"  # the reason of a model that stopped without diverging


class Stop(NamedTuple):
    """Early end of a model's training: the last epoch that it completed, whose weights it keeps, and the reason."""

    epoch: int
    reason: str


@dataclass(frozen=True, eq=False, repr=False)
class TrainingState:
    """A training after an epoch, with all that `train` needs to continue exactly; it can be indexed like `Models`.

    Attributes:
        epoch: the last completed epoch.
        models: the models after that epoch.
        memory: a dict of all else that changes during training, each of shape (M, …): Adam's moments ``first`` and
            ``second``; the number of ``steps`` done; the ``squares`` of gradients and the number of steps, ``counted``,
            since the last evaluation; and ``stopped``, the last epoch that a diverged model completed (-1 for the others),
            with the ``spread`` of its scores, the largest minus the smallest.
    """

    epoch: int
    models: Models
    memory: dict[str, Tensor]

    def __getitem__(self, which: int | slice | Sequence[int] | Tensor) -> "TrainingState":
        which = [which] if isinstance(which, int) else which
        return replace(self, models=self.models[which], memory={name: value[which] for name, value in self.memory.items()})

    def __repr__(self) -> str:
        return f"TrainingState of {self.models} after epoch {self.epoch}"


class Training(NamedTuple):
    """An ensemble's training: the trained models and their history.

    Args:
        models: the trained models.
        history: a dict of curves, each of shape (evaluations, M), and of their ``epoch``, shape (evaluations,). The curves
            are ``loss`` and ``accuracy`` on the training set; ``loss_unseen`` and ``accuracy_unseen`` on the other sequences
            (nan if there are none); ``accuracy_all`` on all; ``suffix`` and ``permutation``, the results of `invariance`;
            and for every parameter ``gradient_…``, the root mean square norm of the mini-batches' gradients (before
            clipping) over the steps since the last evaluation, 0 before the first step. With more than 8192 sequences there
            are no invariances, and a sample of 4096, the same for all models, stands for all and for the unseen sequences. A
            label counts as predicted if its logit exceeds all others.
        snapshots: a dict of the models after chosen epochs.
        stopped: a `Stop` for each model that ended early, by its index. Either the model diverged, or ``each`` of `train`
            returned True, which ends the training of all models. A diverged model, in later snapshots too, has the weights
            of the last epoch that it completed; its later history is nan.
        states: if ``watch`` asks for resumable snapshots, a `TrainingState` for each snapshot's epoch, from which `train`
            can continue exactly.
    """

    models: Models
    history: dict[str, Tensor]
    snapshots: dict[int, Models]
    stopped: dict[int, Stop] = {}  # noqa: RUF012
    states: dict[int, TrainingState] = {}  # noqa: RUF012

    def __repr__(self) -> str:
        said = f"{self.models}, {len(self.history['epoch'])} evaluations, snapshots of {list(self.snapshots)}"
        return f"Training({said}{f', {list(self.stopped)} stopped' if self.stopped else ''})"


def stop_of(epoch: int, spread: float) -> Stop:
    """The stop of a diverged model, with the reason that follows from the spread of its scores."""
    if spread > SPREAD:
        return Stop(epoch, f"its attention scores came to spread over {spread:.3g}, beyond {SPREAD:.0f}")
    return Stop(epoch, "its weights, gradients or losses were no longer finite")


class Evaluation:
    """Evaluations of models on their training sequences and on all sequences.

    Args:
        engine: engine that evaluates the models.
        task: task that the models learn.
        tokens: their training sequences, shape (M, n, L).
    """

    def __init__(self, engine: Plain | Kernel, task: Task, tokens: Tensor):
        self.engine, self.task = engine, task
        test, labels = task.judged()
        self.test = engine.sequences(test.to(tokens.device), labels.to(tokens.device))
        self.listed = task.size <= LISTED
        if self.listed:
            at = indices(tokens, task.p)
            ones = torch.ones_like(at, dtype=engine.dtype)
            seen = ones.new_zeros(len(tokens), len(test)).scatter_add_(1, at, ones)  # how often each occurs in training
            unseen = (seen == 0).to(engine.dtype)
            self.shares = seen / seen.sum(1, keepdim=True), unseen / unseen.sum(1, keepdim=True)

    def of(self, rows: Tensor) -> dict[str, Tensor]:
        """Losses, accuracies, and, if all sequences are listed, invariances of the models, each of shape (M,)."""
        losses, right, sequence = self.engine.predict(rows, self.test)
        if not self.listed:
            on_training, right_there, _ = self.engine.predict(rows)
            means = on_training.mean(1), right_there.mean(1), losses.mean(1), right.mean(1)
        else:
            means = tuple((part * share).sum(1) for share in self.shares for part in (losses, right))
        found = dict(zip(("loss", "accuracy", "loss_unseen", "accuracy_unseen"), means, strict=True))
        found["accuracy_all"] = right.mean(1)
        return found | (variance_shares(sequence.mT, self.task) if self.listed else {})


class Record:
    """Record of models that are trained together, which can be saved to a checkpoint file and restored.

    Args:
        engine: engine that trains and evaluates the models.
        settings: the models' settings.
        watch: what to record.
        tokens: the training sequences, shape (M, n, L).
        targets: their labels, shape (M, n).
        models: number of models; those after them only pad the arrays.
        description: description that a checkpoint file must have.
    """

    def __init__(
        self, engine: Plain | Kernel, settings: Settings, watch: Watch, tokens: Tensor, targets: Tensor, models: int,
        description: str,
    ):  # fmt: skip
        self.engine, self.watch, self.models, self.description = engine, watch, models, description
        self.epochs, self.evaluation = settings.epochs, Evaluation(engine, settings.task, tokens)
        self.order_of = lambda epoch: order_of(epoch, tokens.shape[1])  # the order of an epoch
        self.count, self.probe = tokens.shape[1], engine.sequences(tokens[:, :PROBE], targets[:, :PROBE])
        self.stopped = torch.full((len(tokens),), -1, device=tokens.device)  # last completed epoch; -1 if training
        self.spread = torch.zeros_like(self.stopped, dtype=engine.dtype)  # spread of the scores of models that stopped
        self.squares = self.spread.new_zeros(len(tokens), len(engine.layout.shapes))  # since the last evaluation
        self.epoch, self.counted = 0, 0  # completed epochs, and steps since the last evaluation
        self.history: list[dict[str, Tensor]] = []
        self.snapshots: dict[int, Tensor] = {}
        self.memories: dict[int, dict[str, Tensor]] = {}

    def passed(self, steps: int, sound: Tensor, spread: Tensor) -> Tensor:
        """Count an epoch, record which models stop after it, with the spread of their scores, and return which have."""
        left = ~sound & (self.stopped < 0)
        self.stopped.masked_fill_(left, self.epoch)
        self.spread.copy_(torch.where(left, spread, self.spread))
        self.epoch += 1
        self.counted += steps
        return self.stopped >= 0

    @property
    def due(self) -> bool:
        """Whether models are evaluated after the current epoch."""
        return self.epoch % self.watch.every == 0 or self.epoch == self.epochs

    def keep(self, state: State) -> None:
        """Evaluate the models and keep snapshots, if due after the current epoch."""
        if self.epoch in self.watch.snapshots:
            self.snapshots[self.epoch] = state.rows.clone()
        if self.due:
            entry = self.evaluation.of(state.rows) | {"gradients": (self.squares / max(self.counted, 1)).sqrt()}
            entry = {name: value[: self.models] for name, value in entry.items()}
            for value in entry.values():
                value[self.stopped[: self.models] >= 0] = math.nan
            self.squares.zero_()
            self.counted = 0
            self.history.append(entry | {"epoch": torch.tensor(self.epoch)})
        if self.watch.resumable and self.epoch in self.watch.snapshots:
            kept = {name: value[: self.models].clone() for name, value in self.changing(state).items() if name != "rows"}
            self.memories[self.epoch] = kept | {"counted": torch.full((self.models,), self.counted)}

    def resume(self, state: State, members: list[int], begin: TrainingState) -> None:
        """Continue from another training's state for these members, whose rows of weights are already set."""
        for name, value in self.changing(state).items():
            if name != "rows":
                value.copy_(begin.memory[name][members])
        self.epoch, self.counted = begin.epoch, int(begin.memory["counted"][0])

    def models_of(self, rows: Tensor) -> Models:
        """The models in a matrix of rows, without those that pad it."""
        return Models(self.engine.layout.views(rows), self.engine.norm).map(lambda view: view[: self.models].clone().cpu())

    def so_far(self) -> dict[str, Tensor]:
        """The history up to the last evaluation."""
        history = {name: torch.stack([entry[name] for entry in self.history]).cpu() for name in self.history[0]}
        gradients = history.pop("gradients")
        return history | {f"gradient_{name}": gradients[..., at] for at, name in enumerate(self.engine.layout.shapes)}

    def training(self, rows: Tensor) -> Training:
        """The training so far, as a `Training`."""
        kept = {epoch: self.models_of(rows) for epoch, rows in self.snapshots.items()}
        ends = enumerate(zip(self.stopped[: self.models].tolist(), self.spread.tolist(), strict=False))
        stopped = {model: stop_of(epoch, spread) for model, (epoch, spread) in ends if epoch >= 0}
        if self.epoch < self.epochs:  # ``each`` stopped them all
            stopped = {model: stopped.get(model, Stop(self.epoch, ASKED)) for model in range(self.models)}
        states = {
            epoch: TrainingState(epoch, kept[epoch], {name: value.cpu() for name, value in memory.items()})
            for epoch, memory in self.memories.items()
        }
        return Training(self.models_of(rows), self.so_far(), kept, stopped, states)

    def changing(self, state: State) -> dict[str, Tensor]:
        """The tensors that change from step to step."""
        return state._asdict() | {"squares": self.squares, "stopped": self.stopped, "spread": self.spread}

    def save(self, file: Path, state: State) -> None:
        """Write all that is needed to continue, atomically."""
        arrays = {f"history/{name}": torch.stack([entry[name] for entry in self.history]) for name in self.history[0]}
        arrays |= {f"snapshots/{epoch}": rows for epoch, rows in self.snapshots.items()}
        arrays |= {f"memory/{at}/{name}": value for at, kept in self.memories.items() for name, value in kept.items()}
        arrays |= self.changing(state) | {"numbers": torch.tensor([self.epoch, self.counted])}
        write_arrays(file, {name: value.cpu().numpy() for name, value in arrays.items()}, self.description)

    def restore(self, file: Path, state: State) -> None:
        """Continue from a file that `save` wrote.

        Raises:
            ValueError: if the file cannot be read or was written with other settings.
        """
        arrays, description = read_arrays(file)
        check_description(file, description, self.description)
        device = state.rows.device
        for name, value in self.changing(state).items():
            if name in arrays or name not in ("stopped", "spread"):  # older files lack these
                value.copy_(torch.from_numpy(arrays[name]))
        self.epoch, self.counted = arrays["numbers"].tolist()
        self.history = [{"epoch": torch.tensor(epoch)} for epoch in arrays.pop("history/epoch").tolist()]
        for name, values in arrays.items():
            kind, _, key = name.partition("/")
            if kind == "history":
                for entry, value in zip(self.history, torch.from_numpy(values).to(device), strict=True):
                    entry[key] = value
            elif kind == "snapshots":
                self.snapshots[int(key)] = torch.from_numpy(values).to(device)
            elif kind == "memory":
                at, _, part = key.partition("/")
                self.memories.setdefault(int(at), {})[part] = torch.from_numpy(values).to(device)


Start = Models | TrainingState | None  # what a training starts from


def join(parts: list[Training], order: Tensor | None = None) -> Training:
    """Join the trainings of several groups of models into one, with the models in the given order."""
    order = torch.arange(sum(len(part.models) for part in parts)) if order is None else order
    begins = itertools.accumulate((len(part.models) for part in parts), initial=0)
    ends = {begin + at: stop for begin, part in zip(begins, parts, strict=False) for at, stop in part.stopped.items()}
    stopped = {new: ends[old] for new, old in enumerate(order.tolist()) if old in ends}
    names = [name for name in parts[0].history if name != "epoch"]
    history = {name: torch.cat([part.history[name] for part in parts], 1)[:, order] for name in names}
    history["epoch"] = parts[0].history["epoch"]
    kept = {epoch: Models.join([part.snapshots[epoch] for part in parts])[order] for epoch in parts[0].snapshots}
    states = {}
    for epoch, first in parts[0].states.items():
        memory = {name: torch.cat([part.states[epoch].memory[name] for part in parts])[order] for name in first.memory}
        states[epoch] = TrainingState(epoch, kept[epoch], memory)
    return Training(Models.join([part.models for part in parts])[order], history, kept, stopped, states)


def save_training(file: Path | str, training: Training, description: str = "") -> None:
    """Write a training run to an npz file, atomically.

    Args:
        file: path of the file, which must end in ``.npz``; its folder is created if necessary.
        training: training, as returned by `train`.
        description: description of its origin, which `load_training` can check.
    """
    if Path(file).suffix != ".npz":
        raise ValueError(f"file must end in .npz, got {Path(file).name!r}")
    arrays = {f"history/{name}": value for name, value in training.history.items()}
    for at, models in {"end": training.models, **training.snapshots}.items():
        arrays |= {f"models/{at}/{name}": value for name, value in models.weights.items()}
    arrays |= {f"memory/{at}/{name}": value for at, state in training.states.items() for name, value in state.memory.items()}
    about = json.dumps({"norm": training.models.norm, "description": description, "stopped": training.stopped})
    write_arrays(Path(file), {name: value.numpy() for name, value in arrays.items()}, about)


def load_training(file: Path | str, description: str | None = None) -> Training:
    """Load a training that `save_training` wrote.

    Args:
        file: path of the file.
        description: the description that the file must have; by default, any.

    Returns:
        The training, identical to the last bit.

    Raises:
        ValueError: if the file cannot be read, or has a description other than the one given.
    """
    arrays, about = read_arrays(Path(file))
    about = json.loads(about) if about.startswith("{") else {}
    if not {"norm", "description"} <= about.keys():  # such as files of models and checkpoints
        raise ValueError(f"{file} holds no training, but what another function wrote")
    if description is not None:
        check_description(file, about["description"], description)
    history: dict[str, Tensor] = {}
    kept: dict[str, dict[str, dict[str, Tensor]]] = {"models": {}, "memory": {}}
    for path, array in arrays.items():
        kind, *at, name = path.split("/")
        place = history if kind == "history" else kept[kind].setdefault(at[0], {})
        place[name] = torch.from_numpy(array)
    models = {at: Models(weights, about["norm"]) for at, weights in kept["models"].items()}
    stopped = {int(model): Stop(*said) for model, said in about.get("stopped", {}).items()}
    states = {int(at): TrainingState(int(at), models[at], memory) for at, memory in kept["memory"].items()}
    end = models.pop("end")
    return Training(end, history, {int(epoch): snapshot for epoch, snapshot in models.items()}, stopped, states)


def describe(seeds: list[int], settings: Settings, watch: Watch, start: Start, dtype: object, compiled: bool) -> str:
    """A description of all that determines a training's result, to be stored in files.

    Training uses a task's sizes, its training data, and the sequences on which models are judged. If these data are not
    those of `Task`, the description contains their digest. So it distinguishes any two tasks that some training could
    distinguish, however they were made, and descriptions for `Task` itself stay as they always were.
    """
    task, chosen = settings.task, {field.name: getattr(settings, field.name) for field in fields(Settings)}
    chosen["task"] = {"p": task.p, "length": task.length, "k": task.k}
    plain, own = (_digest(one, seeds, settings) for one in (Task(task.p, task.length, task.k), task))
    chosen["task"] |= {} if own == plain else {"data": own}
    said = {"seeds": seeds, "settings": chosen, "watch": asdict(watch), "dtype": str(dtype)}
    said |= {"start": None if start is None else checksum(start)} | ({"compiled": True} if compiled else {})
    return json.dumps(said)


def _digest(task: Task, seeds: list[int], settings: Settings) -> str:
    """Digest of a task's training data and of the sequences on which models are judged."""
    parts = *training_data(seeds, task, settings.n_train, settings.draws), *task.judged()
    return hashlib.sha256(b"".join(part.cpu().to(torch.int32).numpy().tobytes() for part in parts)).hexdigest()


def check_description(file: Path | str, found: str, wanted: str) -> None:
    """Require the description found in a file to be the wanted one."""
    there, here = (_settings(_complete(description)) for description in (found, wanted))
    names = [name for name in here | there if there.get(name) != here.get(name)]
    if "seeds" in names:
        names = ["seeds", *(name for name in names if name not in ("seeds", "start", "data"))]  # those follow the seeds
    told = [_difference(name, there.get(name), here.get(name)) for name in names]
    if told:
        told = "; ".join([*told[:3], *(["…"] if told[3:] else [])])
        raise ValueError(f"{file} was written by other settings ({told}): remove it, or name another place")


def _complete(description: str) -> dict[str, Any]:
    """A description completed by the values of settings that older files lack."""
    if not description.startswith("{"):
        return {"description": description}
    said = json.loads(description)
    return {"compiled": False} | said | {part: usual | said.get(part, {}) for part, usual in LATER.items()}


def _settings(said: dict[str, Any]) -> dict[str, Any]:
    """All entries of a description, by name; a setting that all models share is reduced to one value."""
    found: dict[str, Any] = {}
    for name, value in said.items():
        if isinstance(value, dict):
            found |= _settings(value)
        else:
            shared = name in PER_MODEL and len(set(value)) == 1
            found[name] = value[0] if shared else value
    return found


def _difference(name: str, there: object, here: object) -> str:
    """The part of an error message about a setting that differs in a file."""
    if name == "seeds":
        return "other seeds, or another chunk"
    if name in ("start", "data"):
        return {"start": "another start", "data": "other labels or sequences of the task"}[name]
    return f"{name} {there}, not {here}" if len(f"{there}{here}") <= 60 else f"another {name}"


def checksum(start: Models | TrainingState) -> int:
    """A checksum that distinguishes ensembles and states."""
    models, memory, epoch = (
        (start, {}, b"") if isinstance(start, Models) else (start.models, start.memory, b"%d" % start.epoch)
    )
    values = [*models.weights.values(), *memory.values()]
    return zlib.crc32(epoch + b"".join(value.cpu().contiguous().numpy().tobytes() for value in values))
