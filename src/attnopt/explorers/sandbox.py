"""The visual sandbox: a recorded training run, frame by frame, and all that the model does in the plane."""

import base64
from collections.abc import Sequence

import torch
import traitlets
from matplotlib.figure import Figure

from attnopt.clustering.sandbox import Run, load_run, run_names
from attnopt.explorers.video import draw_frame, prefix_colours
from bookkit.explorers.base import Explorer

CELLS = 24  # a side of the map of classes in `compute`


class Sandbox(Explorer):
    """Recorded training runs of models with d = 2, frame by frame: every embedding, the attention, the answers, the curves.

    The page carries the parameters of the frames, and everything is computed from them. A sentence, a prefix with a suffix,
    lights up in all the pictures.

    Args:
        runs: names of recorded runs, see `attnopt.clustering.sandbox.run_names`; the first is shown.
        epoch: to begin with; the last of the run unless given.

    Raises:
        TypeError: if a run is something else, such as a training of one's own, which it cannot show.
        ValueError: if there is no run of a name, or no name.

    Traits:
        runs: the names of the runs, in the order of the chooser.
        run: the one shown.
        epoch: the frame shown is the last one that is not after it.
        prefix: number of the prefix of the chosen sentence.
        suffix: number of its suffix.
        data: the runs, as the page carries them.
    """

    module = "sandbox"
    size = (7.2, 7.4)
    alt = (
        "Nine pictures of one model at the end of its training: token and position embeddings; their normalised sums on a "
        "circle with the query; attention, a row a sentence; the values; sequence embeddings, coloured by prefix; the "
        "regions of the classes with the sequence embeddings; receptors and assemblers; loss and accuracy; gradient norms."
    )
    runs = traitlets.List(traitlets.Unicode(), minlen=1).tag(sync=True)
    run = traitlets.Unicode().tag(sync=True)
    epoch = traitlets.Int(min=0).tag(sync=True)
    prefix = traitlets.Int(0, min=0).tag(sync=True)
    suffix = traitlets.Int(0, min=0).tag(sync=True)
    data = traitlets.Dict().tag(sync=True)

    def __init__(self, runs: tuple[str, ...] = ("success",), epoch: int | None = None, **traits):
        if isinstance(runs, str) or not isinstance(runs, Sequence) or not runs:
            raise ValueError(f"runs must be a sequence of names of recorded runs, got {_short(runs)}")
        for name in runs:
            if not isinstance(name, str):
                known = ", ".join(run_names())
                raise TypeError(f"runs must be names of recorded runs ({known}), which alone it shows; got {_short(name)}")
        loaded = [load_run(name) for name in runs]
        traits = {"data": {run.name: _for_page(run) for run in loaded}, "run": runs[0]} | traits
        super().__init__(runs=list(runs), epoch=int(loaded[0].epochs[-1]) if epoch is None else epoch, **traits)

    @traitlets.validate("data")
    def _check_data(self, proposal):
        if set(proposal["value"]) != set(self.runs):
            raise traitlets.TraitError(f"data must be of the runs {', '.join(self.runs)}, got {sorted(proposal['value'])}")
        return proposal["value"]

    @traitlets.validate("run")
    def _check_run(self, proposal):
        if proposal["value"] not in self.runs:
            raise traitlets.TraitError(f"run must be one of {', '.join(self.runs)}, got {proposal['value']!r}")
        return proposal["value"]

    def bounds(self, kernel: bool = True) -> dict:
        """As of any explorer; the run is one of those given."""
        return super().bounds(kernel) | {"run": {"values": list(self.runs)}}

    def _recorded(self) -> Run:
        return load_run(self.run)

    def compute(self) -> dict:
        """What the stages hold at the frame, the answers over the plane, the planes' widths, and where the curves are."""
        run = self._recorded()
        frame = run.frame(self.epoch)
        reaches = {name: float(values[frame]) for name, values in run.reaches.items()}
        cells = ((torch.arange(CELLS, dtype=torch.float64) + 0.5) * 2 / CELLS - 1) * reaches["sequence"]
        plane = torch.stack(torch.meshgrid(cells, cells, indexing="xy"), -1).flatten(0, 1)  # row by row
        then = run.history["epoch"].tolist().index(run.epochs[frame])
        return {name: value.tolist() for name, value in run.stages(frame).items()} | {
            "frame": frame,
            "epoch": int(run.epochs[frame]),
            "map": run.classify(frame, plane).tolist(),
            "reaches": reaches,
            "loss": float(run.history["loss"][then]),
            "accuracy": [float(run.history[which][then]) for which in ("train", "unseen", "all")],
            "suffix": float(run.frames["suffix"][frame]),
            "permutation": float(run.frames["permutation"][frame]),
        }

    def draw_still(self, figure: Figure) -> None:
        """The frame as in the exported video."""
        run = self._recorded()
        sentence = self.prefix * len(run.sentences[1]) + self.suffix
        draw_frame(figure, run, run.frame(self.epoch), min(sentence, len(run.tokens) - 1))

    def __repr__(self):
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in ("run", "epoch", "prefix", "suffix"))
        return f"Sandbox(runs={tuple(self.runs)!r}, {shown})"


def _short(value: object) -> str:
    """A value as a message shows it."""
    text = repr(value)
    return text if len(text) <= 80 else f"an object of type {type(value).__name__}"


def _for_page(run: Run) -> dict:
    """A run as JSON types, its parameters as base64 of their integers."""
    prefixes, suffixes = run.sentences
    return {
        "title": run.title,
        "description": run.description,
        "p": run.task.p,
        "length": run.task.length,
        "k": run.task.k,
        "norm": run.norm,
        "epochs": run.epochs.tolist(),
        "params": {
            name: {"step": step, "values": base64.b64encode(values.tobytes()).decode()}
            for name, (values, step) in run.packed.items()
        },
        "frames": {name: values.tolist() for name, values in run.frames.items()},
        "history": {name: values.tolist() for name, values in run.history.items()},
        "prefixes": prefixes.tolist(),
        "suffixes": suffixes.tolist(),
        "colours": prefix_colours(run),
    }
