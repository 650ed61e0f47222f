"""Runs that the laboratory shows: models frame by frame, histories, and the stages' values on a set of sequences."""

import dataclasses
import functools
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnopt.checks import check_count, check_word
from attnopt.clustering.anatomy import counting_form
from attnopt.clustering.interventions import in_parts
from attnopt.clustering.invariance import variance_shares
from attnopt.clustering.model import BIASES, TRAINED, Models, Norm, Params
from attnopt.clustering.plateau import influences, parity_coefficient
from attnopt.clustering.task import LISTED, Task, check_sums, check_task
from attnopt.clustering.training import Training

DATA = Path(__file__).parents[1] / "data" / "sandbox_runs.npz"
PARTS = ("token", "position", *TRAINED, *BIASES)
LAYERS = ("token", "position", *TRAINED)  # whose gradients are recorded; receptors and assemblers with their biases
LARGEST = 2**15 - 1  # parameters are kept as 16-bit integers
RECORDED = {"loss": "loss", "train": "accuracy", "unseen": "accuracy_unseen", "all": "accuracy_all"}  # as `train` calls them
WITH_BIAS = {"receptors": "receptor_biases", "assemblers": "assembler_bias"}
MULTISETS = 40  # at most this many multisets are shown; if there are more, every second, third, …


@dataclasses.dataclass(frozen=True, repr=False)
class Run:
    """A series of models to step through, one per frame: a recorded training, or an ensemble.

    Attributes:
        name: name of the run.
        title: a few words for a menu.
        description: one sentence about the run.
        task: the task that is learned.
        norm: the models' normalization.
        settings: settings of the training.
        epochs: epochs of the F frames, shape (F,), increasing.
        packed: for each parameter, numbers of shape (F, …), 16-bit integers in recorded runs, and the factor that turns them
            into weights.
        frames: the results of `read_frames` for each frame.
        history: a dict of ``epoch`` (every frame's is among them) and, as far as known, ``loss``, the accuracies ``train``,
            ``unseen``, and ``all``, and the gradient norms ``token`` … ``assemblers`` at these epochs.
        axis: meaning of ``epochs``, "epoch", or "model" for the indices of an ensemble's models.

    Raises:
        ValueError: if the labels are not the sum of the first k tokens modulo p, which the page computes.
    """

    name: str
    title: str
    description: str
    task: Task
    norm: Norm
    settings: dict[str, Any]
    epochs: np.ndarray
    packed: dict[str, tuple[np.ndarray, float]]
    frames: dict[str, np.ndarray]
    history: dict[str, np.ndarray]
    axis: str = "epoch"

    def __post_init__(self) -> None:
        check_sums(self.task)

    @classmethod
    def of_models(cls, models: Models, task: Task, name: str = "models", description: str = "") -> "Run":
        """A run with the models of an ensemble as frames, in float32; missing biases are set to zero.

        Raises:
            ValueError: if the norm is "smooth", or the task's labels are not sums.
        """
        return cls._of(models, task, name, description, np.arange(len(models)), {}, "model")

    @classmethod
    def of_training(cls, training: Training, task: Task, model: int = 0, name: str = "training") -> "Run":
        """A run with one model's snapshots and final state in a training as frames, and with the training's history.

        Raises:
            IndexError: if there is no such model.
        """
        if not isinstance(training, Training):
            raise TypeError(f"training must be a Training, as from train, got {type(training).__name__}")
        models = {**training.snapshots, int(training.history["epoch"][-1]): training.models}
        epochs = np.array(sorted(models))
        known = {name: values[:, model].double().numpy() for name, values in training.history.items() if name != "epoch"}
        history = {ours: known[theirs] for ours, theirs in RECORDED.items()} | {
            layer: np.linalg.norm([known[f"gradient_{part}"] for part in (layer, WITH_BIAS.get(layer)) if part], axis=0)
            for layer in LAYERS
        }
        points = training.history["epoch"].numpy()
        if missing := sorted(set(epochs.tolist()) - set(points.tolist())):
            raise ValueError(f"training must be evaluated at its snapshots (Watch(every=1)), was not at epoch {missing[0]}")
        frames = Models.join([models[epoch][model] for epoch in epochs.tolist()])
        said = f"{len(epochs)} epochs of a training."
        if model in training.stopped:
            said += " It stopped after epoch {}: {}.".format(*training.stopped[model])
        return cls._of(frames, task, name, said, epochs, {"epoch": points} | history, "epoch")

    @classmethod
    def _of(
        cls,
        models: Models,
        task: Task,
        name: str,
        description: str,
        epochs: np.ndarray,
        history: dict[str, np.ndarray],
        axis: str,
    ) -> "Run":
        models.check_task(task)
        if models.vocabulary != task.p:
            raise ValueError(f"models must have the task's {task.p} tokens, got {models}")
        check_word("norm", models.norm, ("rms", "unit"))
        zero = {"receptor_biases": (models.width,), "assembler_bias": (models.dim,)}
        weights = {
            part: models.weights["token"].new_zeros(len(models), *shape) for part, shape in zero.items()
        } | models.weights
        packed = {part: (weights[part].detach().cpu().float().numpy().astype("<f4"), 1.0) for part in PARTS}
        frames = read_frames(Models(weights, models.norm).double(), task)
        history = history or {"epoch": epochs} | {name: frames[name] for name in frames if name == "all"}
        return cls(name, name.replace("_", " "), description, task, models.norm, {}, epochs, packed, frames, history, axis)

    def __repr__(self) -> str:
        return f"Run({self.name!r}, {self.task}, norm {self.norm!r}, {len(self.epochs)} frames): {self.description}"

    @functools.cached_property
    def models(self) -> Models:
        """The models of all frames as an ensemble in float64; recorded runs store weights with 16 bits."""
        return Models(
            {name: torch.from_numpy(values.astype(np.float64) * step) for name, (values, step) in self.packed.items()},
            self.norm,
        )

    def at(self, epoch: int) -> Models:
        """The model after an epoch, or at the last frame before it, as an ensemble of one; ``epochs`` lists the frames."""
        return self.models[self.frame(check_count("epoch", epoch, 0))]

    def frame(self, epoch: int) -> int:
        """The index of the last frame at or before an epoch."""
        return max(0, int(np.searchsorted(self.epochs, epoch, side="right")) - 1)

    @functools.cached_property
    def sentences(self) -> tuple[Tensor, Tensor]:
        """The prefixes and suffixes whose combinations are shown; see `sentence_parts`."""
        return sentence_parts(self.task)

    @functools.cached_property
    def tokens(self) -> Tensor:
        """The sequences that are shown, each prefix with every suffix, shape (n, L)."""
        prefixes, suffixes = self.sentences
        return torch.cat([prefixes.repeat_interleave(len(suffixes), 0), suffixes.repeat(len(prefixes), 1)], 1)

    def stages(self, frame: int) -> dict[str, Tensor]:
        """The values of the stages at a frame.

        Returns:
            A dict with, for each token and position, ``embeddings`` z and ``values`` Vz, both (p, L, d), and for the n
            sequences that are shown, ``attention`` (n, L), ``sequence`` ξ (n, d), and ``probabilities`` (n, p).
        """
        model = self.models[frame]
        table, held = model.table()[0], model.stages(self.tokens)
        return {
            "embeddings": table,
            "values": table @ model.weights["value"][0].T,
            "attention": held["attention"][0],
            "sequence": held["sequence"][0],
            "probabilities": held["logits"][0].softmax(-1),
        }

    def classify(self, frame: int, points: Tensor) -> Tensor:
        """Class probabilities (…, p) from sequence embeddings (…, d), by the feed-forward layer of a frame."""
        logits = self.models[frame].classify(points.reshape(1, -1, points.shape[-1]))
        return logits.softmax(-1).view(*points.shape[:-1], -1)

    @functools.cached_property
    def reaches(self) -> dict[str, np.ndarray]:
        """Half the width of each picture at each frame, chosen so that it holds all that is drawn and changes slowly."""
        weights = self.models.weights
        drawn = {
            "embeddings": [weights["token"], weights["position"]],
            "values": [self.models.table() @ weights["value"].mT.unsqueeze(1)],
            "sequence": [self.models.stages(self.tokens)["sequence"]],
            "neurons": [weights["receptors"], weights["assemblers"]],
        }
        extent = lambda parts: torch.stack([part.abs().flatten(1).amax(1) for part in parts]).amax(0).numpy()  # noqa: E731
        return {name: _slowly(extent(parts)) for name, parts in drawn.items()}


def read_frames(models: Models, task: Task) -> dict[str, np.ndarray]:
    """Results over all sequences for each frame of a run; an empty dict if there are more than 8192 sequences.

    Args:
        models: the models of the F frames, in float64.
        task: the task that defines the sequences.

    Returns:
        A dict, rounded to four decimals, with the accuracy ``all`` and the invariances ``suffix`` and ``permutation``, each
        (F,). For p = 2 it also has ``m`` (F, L) and ``explained`` (F,), see `Models.count`, ``parity`` π (F,), see
        `parity_coefficient`, and ``influences`` ‖δ_t‖ (F, L), see `influences`.
    """
    if task.size > LISTED:
        return {}
    tokens, targets = task.all()

    def of_some(part: Models, _: int) -> dict[str, Tensor]:
        sequence = part.stages(tokens)["sequence"]
        logits = part.classify(sequence)
        found = {"all": (logits.argmax(-1) == targets).double().mean(1)} | variance_shares(sequence, task)
        if task.p == 2:
            m, explained = counting_form(sequence, task)
            parity = parity_coefficient(logits[..., 1] - logits[..., 0], task.k)
            found |= {"m": m, "explained": explained, "parity": parity, "influences": influences(part)}
        return found

    return {name: values.numpy().round(4) for name, values in in_parts(models, of_some).items()}


def sentence_parts(task: Task) -> tuple[Tensor, Tensor]:
    """Prefixes and suffixes of the sequences that are shown.

    The prefixes are all multisets of k tokens, or at most 40 of them, each in up to three orders (two if p > 2). There are
    up to four suffixes (two if p > 2), the first two of which differ at every position.

    Returns:
        Prefixes, sorted by multiset, shape (n, k), and suffixes, shape (m, L - k).
    """
    check_task(task)
    p, length, k = task.p, task.length, task.k
    prefixes, multisets = [], list(itertools.combinations_with_replacement(range(p), k))
    for multiset in multisets[:: -(-len(multisets) // MULTISETS)]:
        turned = [multiset, multiset[::-1], multiset[2:] + multiset[:2], multiset[3:] + multiset[:3]]
        prefixes += list(dict.fromkeys(turned))[: 3 if p == 2 else 2]
    mixed = [t * (t + 1) // 2 % p for t in range(length - k)]
    suffixes = [mixed, [(x + 1) % p for x in mixed], [0] * (length - k), [p - 1] * (length - k)]
    different = list(dict.fromkeys(map(tuple, suffixes[: 4 if p == 2 else 2])))
    return torch.tensor(prefixes), torch.tensor(different, dtype=torch.int64)


def pack(weights: Params) -> dict[str, tuple[np.ndarray, float]]:
    """Weights of a run, each of shape (F, …), as 16-bit integers and the factor that turns them into weights."""
    packed = {}
    for name in PARTS:
        values = weights[name].double().numpy()
        step = float(np.abs(values).max() / LARGEST) or 1.0
        packed[name] = np.round(values / step).astype("<i2"), step
    return packed


def run_names() -> list[str]:
    """The names of the recorded runs."""
    with np.load(DATA, allow_pickle=False) as arrays:
        return sorted(json.loads(str(arrays["about"]))["runs"])


@functools.cache
def load_run(name: str) -> Run:
    """Load the recorded run with this name (for the names, see `run_names`)."""
    if name not in run_names():
        raise ValueError(f"name must be one of the recorded runs {', '.join(run_names())}, got {name!r}")
    with np.load(DATA, allow_pickle=False) as arrays:
        about = json.loads(str(arrays["about"]))["runs"][name]
        part = {key.split("/", 1)[1]: arrays[key] for key in arrays.files if key.startswith(f"{name}/")}
    return Run(
        name=name,
        task=Task(*(about.pop(key) for key in ("p", "length", "k"))),
        **about,
        epochs=part["epochs"],
        packed={key: (part[f"params/{key}"], float(part[f"step/{key}"])) for key in PARTS},
        frames={key.split("/")[1]: value for key, value in part.items() if key.startswith("frames/")},
        history={key.split("/")[1]: value for key, value in part.items() if key.startswith("history/")},
    )


def save_runs(path: Path, runs: list[Run], provenance: dict[str, Any]) -> None:
    """Write runs and their provenance to one compressed file without pickles."""
    kept = ("title", "description", "norm", "settings")
    about = {run.name: {key: getattr(run, key) for key in kept} for run in runs}
    for run in runs:  # whose tasks are sums
        about[run.name] |= {key: getattr(run.task, key) for key in ("p", "length", "k")}
    about = {"provenance": provenance, "runs": about}
    arrays: dict[str, Any] = {"about": np.array(json.dumps(about, sort_keys=True))}
    for run in runs:
        arrays[f"{run.name}/epochs"] = run.epochs
        for name, (values, step) in run.packed.items():
            arrays |= {f"{run.name}/params/{name}": values, f"{run.name}/step/{name}": np.float64(step)}
        for group, members in (("frames", run.frames), ("history", run.history)):
            arrays |= {f"{run.name}/{group}/{key}": value for key, value in members.items()}
    np.savez_compressed(path, **arrays)


def _slowly(extents: np.ndarray, window: int = 4) -> np.ndarray:
    """Slightly enlarged extents that change slowly: the mean, over nearby frames, of the largest extent near each."""
    around = lambda values: np.lib.stride_tricks.sliding_window_view(np.pad(values, window, "edge"), 2 * window + 1)  # noqa: E731
    return 1.15 * np.maximum(around(around(extents).max(1)).mean(1), 1e-6)
