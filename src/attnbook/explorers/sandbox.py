"""The laboratory: recorded runs and the reader's own trainings, frame by frame, with all stages of the model."""

import base64
import math
from collections.abc import Sequence

import numpy as np
import torch
import traitlets
from torch import Tensor

from attnbook.explorer import Explorer, Interval
from attnopt.clustering import Models, Task, Training
from attnopt.clustering.anatomy import counting_form
from attnopt.clustering.sandbox import LISTED, PARTS, Run, load_run, run_names

CELLS = 24  # per side of the map of classes in `compute`
OWN = "own"  # the run that is a training in the page
MOST = 12  # models of one training that can be shown
SIZES = ("p", "length", "k")


class Sandbox(Explorer):
    """The laboratory: train models in the page, change them, and compare them with recorded runs, models, and trainings.

    The page contains the parameters of the frames and computes everything from them. The chosen sequence (a prefix and a
    suffix) is highlighted in all the pictures. Trainings in the page use double precision and their own random generator,
    and depend only on the settings, the seed, and the edits. With a kernel, the attribute `models` holds the model shown.

    Args:
        runs: a sequence of runs and names of recorded runs (see `attnopt.clustering.sandbox.run_names`); or `Models`, with
            one frame per model; or a `Training` of at most twelve models, with one run per model. The first run is shown.
        epoch: the initial epoch; by default, the last epoch of the run, or 0 for `Models`.
        task: the task of the given runs; its labels must be the sums of the first k tokens (``rule`` sets other labels for
            the training in the page).

    Raises:
        TypeError: if one of ``runs`` is neither a run nor a name.
        ValueError: if a name is unknown, there is no run, two runs have the same name, or models do not fit the task.

    Traits:
        runs: the names of the runs, in the order of the chooser.
        run: the name of the run shown, or "own", the training in the page.
        epoch: the explorer shows the last frame at or before this epoch.
        prefix: number of the prefix of the chosen sequence.
        suffix: number of the suffix of the chosen sequence.
        sequence: the chosen sequence, as digits, if a reader has typed it; otherwise empty.
        data: the runs, in the form that the page contains.
        seed, p, length, k, dim, width, count, batch, rate, decay, clip, beta1, beta2, eps, discount, norm: settings of
            the training in the page. ``count`` is the number of training sequences, ``dim`` is d, and ``clip`` is 0 for no
            clipping; the others are as in `Settings` and Adam.
        rule: custom labels, as text: L integer weights separated by spaces, or a table of pᴸ digits; empty for the sum of
            the first k tokens.
        goal: the epoch at which training ends.
        start: what training starts from: empty, "run@epoch", or "w:" and the weights (base64 of float32).
        edits: changes during training, each of the form "step kind at values", separated by semicolons.
        fork: an edit, in the same form, at which a second training branches off.
        live: the frame last shown of the training in the page, for the kernel.
    """

    module = "sandbox"
    alt = (
        "Three pictures of one model, and nine more when they are opened: token and position embeddings; their normalized "
        "sums on a circle with the query; attention, one row per sequence; the values; sequence embeddings, colored by "
        "prefix; the regions of the classes with the sequence embeddings; receptors and assemblers; loss and accuracy; "
        "gradient norms."
    )
    runs = traitlets.List(traitlets.Unicode(), minlen=1).tag(sync=True)
    run = traitlets.Unicode().tag(sync=True)
    epoch = Interval(0, 0, 100_000)
    prefix = traitlets.Int(0, min=0).tag(sync=True)
    suffix = traitlets.Int(0, min=0).tag(sync=True)
    sequence = traitlets.Unicode("").tag(sync=True)
    data = traitlets.Dict().tag(sync=True)
    seed = traitlets.Int(0, min=0, max=2**32 - 1).tag(sync=True)
    p = traitlets.Int(2, min=2, max=7).tag(sync=True)
    length = traitlets.Int(12, min=1, max=16).tag(sync=True)
    k = traitlets.Int(5, min=1, max=16).tag(sync=True)
    dim = traitlets.Int(2, min=1, max=8).tag(sync=True)
    width = traitlets.Int(32, min=1, max=256).tag(sync=True)
    count = traitlets.Int(2048, min=1, max=8192).tag(sync=True)
    batch = traitlets.Int(32, min=1, max=8192).tag(sync=True)
    rate = Interval(3e-3, 1e-6, 1)
    decay = Interval(0, 0, 100)
    clip = Interval(0, 0, 1000)
    beta1 = Interval(0.9, 0, 0.999999)
    beta2 = Interval(0.999, 0, 0.999999)
    eps = Interval(1e-8, 1e-16, 1)
    discount = Interval(1, 0.001, 1000)
    norm = traitlets.Enum(("rms", "unit"), "rms").tag(sync=True)
    rule = traitlets.Unicode("").tag(sync=True)
    goal = traitlets.Int(1000, min=1, max=10_000).tag(sync=True)
    start = traitlets.Unicode("").tag(sync=True)
    edits = traitlets.Unicode("").tag(sync=True)
    fork = traitlets.Unicode("").tag(sync=True)
    live = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        runs: Sequence[str | Run] | Models | Training = ("success",),
        epoch: float | None = None,
        *,
        task: Task | None = None,
        **traits,
    ):
        held = _runs(runs, Task() if task is None else task)
        self._held = {run.name: run for run in held}
        if len(self._held) < len(held) or OWN in self._held:
            raise ValueError(f"runs must have names of their own, other than {OWN!r}, got {[run.name for run in held]}")
        names = list(self._held)
        traits = {"data": {run.name: _for_page(run) for run in held}, "run": names[0]} | traits
        last = held[0].epochs[-1] if held[0].axis == "epoch" else 0
        super().__init__(runs=names, epoch=float(last) if epoch is None else epoch, **traits)

    @traitlets.validate("data")
    def _check_data(self, proposal):
        if set(proposal["value"]) != set(self.runs):
            raise traitlets.TraitError(f"data must be of the runs {', '.join(self.runs)}, got {sorted(proposal['value'])}")
        return proposal["value"]

    @traitlets.validate("run")
    def _check_run(self, proposal):
        if proposal["value"] not in [*self.runs, OWN]:
            raise traitlets.TraitError(f"run must be one of {', '.join([*self.runs, OWN])}, got {proposal['value']!r}")
        return proposal["value"]

    @traitlets.validate("live")
    def _check_live(self, proposal):
        if proposal["value"]:
            try:
                _live_models(proposal["value"])
            except (KeyError, TypeError, ValueError) as error:
                raise traitlets.TraitError(f"live must be a frame of a training in the page: {error}") from error
        return proposal["value"]

    def bounds(self, kernel: bool = True) -> dict:
        """The traits' bounds; the run is one of those given or the reader's own."""
        return super().bounds(kernel) | {"run": {"values": [*self.runs, OWN]}}

    @property
    def models(self) -> Models | None:
        """The model shown, as an ensemble of one; None before the first frame of a training in the page.

        Neurons that a reader has switched off have assemblers (output weights) of zero; positions that are switched off are
        not marked.
        """
        if self.run == OWN:
            return _live_models(self.live) if self.live else None
        run = self._held[self.run]
        return run.models[run.frame(self.epoch)]

    def compute(self) -> dict | None:
        """The model's stages at the frame, its answers over the plane, the planes' half-widths, and the curves' values.

        None before the first frame of a training in the page.
        """
        if self.run == OWN:
            return self._of_own() if self.live else None
        run = self._held[self.run]
        frame = run.frame(self.epoch)
        then = run.history["epoch"].tolist().index(run.epochs[frame])
        known = {name: values[then] for name, values in run.history.items()} | {
            name: values[frame] for name, values in run.frames.items() if name != "all"
        }
        reaches = {name: float(values[frame]) for name, values in run.reaches.items()}
        held = run.stages(frame)
        reading = {name: np.asarray(known[name]).tolist() for name in ("m", "explained", "influences") if name in known}
        return _numbers(run.models[frame], held, reaches, frame, float(run.epochs[frame]), known, reading)

    def _of_own(self) -> dict:
        """As `compute`, for the frame that the page sent."""
        live, models = self.live, _live_models(self.live)
        task = Task(*(live[name] for name in SIZES))
        run = Run.of_models(models, task)
        off = torch.tensor(live["positions"]) == 0
        patch = {"scores": models.stages(run.tokens)["scores"].masked_fill(off, -math.inf)} if off.any() else {}
        stages = models.stages(run.tokens, patch)
        table = models.table()[0]
        values = table @ models.weights["value"][0].T
        held = {
            "embeddings": table,
            "values": values,
            "attention": stages["attention"][0],
            "sequence": stages["sequence"][0],
            "probabilities": stages["logits"][0].softmax(-1),
        }
        weights = {name: value[0] for name, value in _live_models(self.live, whole=True).weights.items()}
        drawn = {
            "embeddings": [weights["token"], weights["position"]],
            "values": [values],
            "sequence": [held["sequence"]],
            "neurons": [weights["receptors"], weights["assemblers"].T],
        }
        reading = {}
        if task.p == 2 and task.size <= LISTED:
            tokens = task.all()[0]
            patch = {"scores": models.stages(tokens)["scores"].masked_fill(off, -math.inf)} if off.any() else {}
            m, explained = counting_form(models.stages(tokens, patch)["sequence"], task)
            reading = {"m": m[0].tolist(), "explained": explained.item()}
        known = live["evaluation"]
        reading["influences"] = known.get("influences")
        reaches = {name: _stepped(parts) for name, parts in drawn.items()}
        return _numbers(models, held, reaches, live["frame"], live["epoch"], known, reading)

    def __repr__(self):
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in ("run", "epoch", "prefix", "suffix"))
        return f"Sandbox(runs={tuple(self.runs)!r}, {shown})"


def _runs(given: Sequence[str | Run] | Models | Training, task: Task) -> list[Run]:
    """Runs from names, runs, models, or a training."""
    if isinstance(given, Training):  # a named tuple, so also a sequence
        if len(given.models) > MOST:
            raise ValueError(f"runs must be a training of at most {MOST} models, got {len(given.models)}")
        names = ["training"] if len(given.models) == 1 else [f"model_{at}" for at in range(len(given.models))]
        return [Run.of_training(given, task, at, name) for at, name in enumerate(names)]
    if isinstance(given, Models):
        return [Run.of_models(given, task, description=f"Models of an ensemble, {len(given)}, one per frame.")]
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise ValueError(f"runs must be names of recorded runs or runs, Models or a Training, got {_short(given)}")
    for one in given:
        if not isinstance(one, str | Run):
            known = ", ".join(run_names())
            raise TypeError(
                f"runs must be names of recorded runs ({known}) or runs, or one Models or Training; got {_short(one)}"
            )
    return [load_run(one) if isinstance(one, str) else one for one in given]


def _live_models(live: dict, whole: bool = False) -> Models:
    """The model of a frame that the page sent; neurons that are off add nothing unless ``whole`` is set."""
    weights = {name: torch.tensor([live["weights"][name]], dtype=torch.float64) for name in PARTS}
    models = Models(weights, live["norm"])
    on = torch.tensor(live["neurons"], dtype=torch.float64)
    return models if whole else models.replace(assemblers=weights["assemblers"] * on)


def _stepped(parts: list[Tensor]) -> float:
    """Half the width of a plane that holds vectors, (…, d) each: a little more than they need."""
    size = max((part.abs() if part.shape[-1] == 2 else part.norm(dim=-1)).max().item() for part in parts)
    return 10 ** (math.ceil(10 * math.log10(1.05 * max(size, 1e-6))) / 10)


def _numbers(models: Models, held: dict, reaches: dict, frame: int, epoch: float, known: dict, reading: dict) -> dict:
    """The numbers that the page computes for a frame, as JSON types."""
    plane = []
    if models.dim == 2:
        cells = ((torch.arange(CELLS, dtype=torch.float64) + 0.5) * 2 / CELLS - 1) * reaches["sequence"]
        points = torch.stack(torch.meshgrid(cells, cells, indexing="xy"), -1).view(1, -1, 2)  # row by row
        plane = models.classify(points)[0].softmax(-1).tolist()
    number = lambda name: None if known.get(name) is None or math.isnan(known[name]) else float(known[name])  # noqa: E731
    return {name: value.tolist() for name, value in held.items()} | {
        "frame": frame,
        "epoch": epoch,
        "map": plane,
        "reaches": reaches,
        "loss": number("loss"),
        "accuracy": [number(which) for which in ("train", "unseen", "all")],
        **{name: number(name) for name in ("suffix", "permutation", "parity")},
        **{name: reading.get(name) for name in ("m", "explained", "influences")},
    }


def _short(value: object) -> str:
    """A value as a message shows it."""
    text = repr(value)
    return text if len(text) <= 80 else f"an object of type {type(value).__name__}"


def _for_page(run: Run) -> dict:
    """A run as JSON types, with its parameters in base64."""
    return {
        "title": run.title,
        "description": run.description,
        "axis": run.axis,
        "p": run.task.p,
        "length": run.task.length,
        "k": run.task.k,
        "dim": run.models.dim,
        "width": run.models.width,
        "norm": run.norm,
        "epochs": run.epochs.tolist(),
        "params": {
            name: {"step": step, "kind": values.dtype.str[1:], "values": base64.b64encode(values.tobytes()).decode()}
            for name, (values, step) in run.packed.items()
        },
        "frames": {name: values.tolist() for name, values in run.frames.items() if name != "all"},
        "history": {name: [None if math.isnan(x) else x for x in values.tolist()] for name, values in run.history.items()},
    }
