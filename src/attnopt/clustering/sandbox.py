"""Recorded training runs: the parameters at chosen epochs, histories, and what the stages do with a set of sentences."""

import dataclasses
import functools
import itertools
import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from attnopt.clustering.model import BIASES, TRAINED, Models, Norm, Params
from attnopt.clustering.task import Task, check_task

DATA = Path(__file__).parents[1] / "data" / "sandbox_runs.npz"
PARTS = ("token", "position", *TRAINED, *BIASES)
LAYERS = ("token", "position", *TRAINED)  # whose gradients are recorded; receptors and assemblers with their biases
LARGEST = 2**15 - 1  # parameters are kept as 16-bit integers


@dataclasses.dataclass(frozen=True, repr=False)
class Run:
    """A recorded training run.

    Attributes:
        name: of the run.
        title: a few words for a chooser.
        description: one sentence.
        task: what is learned.
        norm: the model's normalisation.
        settings: of the training.
        epochs: of the frames, shape (F,), increasing.
        packed: each parameter as 16-bit integers, shape (F, …), and the step that they count.
        frames: for each frame ``suffix`` and ``permutation``, the invariances over all sequences.
        history: ``epoch`` and, at these, ``loss``, ``train``, ``unseen`` and ``all`` (accuracies), and the gradient norms
            ``token`` … ``assemblers``; every frame's epoch is among them.
    """

    name: str
    title: str
    description: str
    task: Task
    norm: Norm
    settings: dict
    epochs: np.ndarray
    packed: dict[str, tuple[np.ndarray, float]]
    frames: dict[str, np.ndarray]
    history: dict[str, np.ndarray]

    def __repr__(self) -> str:
        return f"Run({self.name!r}, {self.task}, norm {self.norm!r}, {len(self.epochs)} frames): {self.description}"

    @functools.cached_property
    def models(self) -> Models:
        """The model of every frame, as an ensemble, float64; weights are kept to 16 bits."""
        return Models({name: torch.from_numpy(values * step) for name, (values, step) in self.packed.items()}, self.norm)

    def at(self, epoch: int) -> Models:
        """The model after an epoch, or of the last frame before it, as an ensemble of one; frames are at ``epochs``.

        Raises:
            ValueError: if the epoch is negative.
        """
        if epoch < 0:
            raise ValueError(f"epoch must be 0 or more, got {epoch}")
        return self.models[self.frame(epoch)]

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


def sentence_parts(task: Task) -> tuple[Tensor, Tensor]:
    """Prefixes and suffixes of the sentences that are shown.

    Every multiset of k tokens is there in up to three orders (two if p > 2), and there are four suffixes (two if p > 2), the
    first two of which differ everywhere.

    Returns:
        Prefixes, sorted by multiset, shape (n, k), and suffixes, shape (m, L - k).

    Raises:
        TypeError: if ``task`` is none.
    """
    check_task(task)
    p, length, k = task.p, task.length, task.k
    prefixes = []
    for multiset in itertools.combinations_with_replacement(range(p), k):
        turned = [multiset, multiset[::-1], multiset[2:] + multiset[:2], multiset[3:] + multiset[:3]]
        prefixes += list(dict.fromkeys(turned))[: 3 if p == 2 else 2]
    mixed = [t * (t + 1) // 2 % p for t in range(length - k)]
    suffixes = [mixed, [(x + 1) % p for x in mixed], [0] * (length - k), [p - 1] * (length - k)]
    return torch.tensor(prefixes), torch.tensor(suffixes[: 4 if p == 2 else 2])


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
    """A recorded run.

    Raises:
        ValueError: if there is none of that name.
    """
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
        frames={key: part[f"frames/{key}"] for key in ("suffix", "permutation")},
        history={key.split("/")[1]: value for key, value in part.items() if key.startswith("history/")},
    )


def save_runs(path: Path, runs: list[Run], provenance: dict) -> None:
    """Write runs and their provenance to one compressed file without pickles."""
    kept = ("title", "description", "norm", "settings")
    about = {run.name: {key: getattr(run, key) for key in kept} | dataclasses.asdict(run.task) for run in runs}
    about = {"provenance": provenance, "runs": about}
    arrays = {"about": np.array(json.dumps(about, sort_keys=True))}
    for run in runs:
        arrays[f"{run.name}/epochs"] = run.epochs
        for name, (values, step) in run.packed.items():
            arrays |= {f"{run.name}/params/{name}": values, f"{run.name}/step/{name}": np.float64(step)}
        for group, members in (("frames", run.frames), ("history", run.history)):
            arrays |= {f"{run.name}/{group}/{key}": value for key, value in members.items()}
    np.savez_compressed(path, **arrays)


def _slowly(extents: np.ndarray, window: int = 4) -> np.ndarray:
    """A little more than the extents: the mean, over neighbouring frames, of the largest among their neighbours."""
    around = lambda values: np.lib.stride_tricks.sliding_window_view(np.pad(values, window, "edge"), 2 * window + 1)  # noqa: E731
    return 1.15 * np.maximum(around(around(extents).max(1)).mean(1), 1e-6)
