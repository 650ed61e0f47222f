"""Runs that the laboratory shows: models frame by frame, histories, and what the stages do with a set of sentences."""

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
MULTISETS = 40  # of a prefix that are shown, about; every second, third, … of more


@dataclasses.dataclass(frozen=True, repr=False)
class Run:
    """Models in a row that a reader goes through: a recorded training, or an ensemble, one model per frame.

    Attributes:
        name: of the run.
        title: a few words for a chooser.
        description: one sentence.
        task: what is learned.
        norm: the model's normalization.
        settings: of the training.
        epochs: of the frames, shape (F,), increasing.
        packed: each parameter as 16-bit integers, shape (F, …), and the step that they count.
        frames: what `read_frames` says of each frame.
        history: ``epoch`` and, at these, ``loss``, ``train``, ``unseen`` and ``all`` (accuracies), and the gradient norms
            ``token`` … ``assemblers``, as far as they are known; every frame's epoch is among them.
        axis: what ``epochs`` are, "epoch", or "model" for the numbers of an ensemble's models.

    Raises:
        ValueError: if the task's labels are not those of `Task`, which the page computes from p and k.
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
        """The models of an ensemble, float32, one per frame; without biases they get biases of zero.

        Raises:
            ValueError: if the norm is "smooth", or the task's labels are not sums.
        """
        return cls._of(models, task, name, description, np.arange(len(models)), {}, "model")

    @classmethod
    def of_training(cls, training: Training, task: Task, model: int = 0, name: str = "training") -> "Run":
        """One model of a training: its snapshots and its end as frames, with the training's history.

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
        """The model of every frame, as an ensemble, float64; weights are kept to 16 bits."""
        return Models(
            {name: torch.from_numpy(values.astype(np.float64) * step) for name, (values, step) in self.packed.items()},
            self.norm,
        )

    def at(self, epoch: int) -> Models:
        """The model after an epoch, or of the last frame before it, as an ensemble of one; frames are at ``epochs``."""
        return self.models[self.frame(check_count("epoch", epoch, 0))]

    def frame(self, epoch: int) -> int:
        """The last frame not after an epoch."""
        return max(0, int(np.searchsorted(self.epochs, epoch, side="right")) - 1)

    @functools.cached_property
    def sentences(self) -> tuple[Tensor, Tensor]:
        """The prefixes and suffixes whose combinations are shown, see `sentence_parts`."""
        return sentence_parts(self.task)

    @functools.cached_property
    def tokens(self) -> Tensor:
        """The sentences shown, each prefix with every suffix, shape (n, L)."""
        prefixes, suffixes = self.sentences
        return torch.cat([prefixes.repeat_interleave(len(suffixes), 0), suffixes.repeat(len(prefixes), 1)], 1)

    def stages(self, frame: int) -> dict[str, Tensor]:
        """What the stages hold at a frame.

        Returns:
            ``embeddings`` Z (p, L, d), ``values`` VZ (p, L, d), and for the n sentences ``attention`` (n, L), ``sequence`` ξ
            (n, d) and ``probabilities`` (n, p).
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
        """Probabilities that the feed-forward layer of a frame gives to sequence embeddings, shape (…, d) to (…, p)."""
        logits = self.models[frame].classify(points.reshape(1, -1, points.shape[-1]))
        return logits.softmax(-1).view(*points.shape[:-1], -1)

    @functools.cached_property
    def reaches(self) -> dict[str, np.ndarray]:
        """Half the width of each plane at each frame, such that it holds all that is drawn there and changes slowly."""
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
    """What the frames of a run show of the task, over all sequences; nothing where there are more than 8192.

    Args:
        models: one per frame, F of them, float64.
        task: whose sequences.

    Returns:
        ``all``, the accuracy, ``suffix`` and ``permutation``, the invariances, each (F,); for p = 2 also ``m`` (F, L) and
        ``explained`` (F,), see `Models.count`, ``parity`` π (F,) and ``influences`` ‖δ_t‖ (F, L), see `parity_coefficient`
        and `influences`; rounded to four digits.
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
    """Prefixes and suffixes of the sentences that are shown.

    Every multiset of k tokens, or of more than 40 some, is there in up to three orders (two if p > 2), and there are four
    suffixes (two if p > 2), the first two of which differ everywhere, or as many as there are.

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
    """Weights of a run, shape (F, …) each, as 16-bit integers and the step that they count."""
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
    """A recorded run."""
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
    """A little more than the extents: the mean, over neighboring frames, of the largest among their neighbors."""
    around = lambda values: np.lib.stride_tricks.sliding_window_view(np.pad(values, window, "edge"), 2 * window + 1)  # noqa: E731
    return 1.15 * np.maximum(around(around(extents).max(1)).mean(1), 1e-6)
