"""One loss spike of a recorded run, step by step: the loss, the length of Adam's steps, and the sequence embeddings."""

import base64
import functools
import itertools
import math
from pathlib import Path

import numpy as np
import torch
import traitlets
from torch import Tensor
from torch.nn.functional import one_hot

from attnbook.explorer import Explorer
from attnopt.clustering import Models, Task, training_data
from attnopt.clustering.model import marks
from attnopt.clustering.sandbox import sentence_parts
from attnopt.clustering.spikes import GROUPS, losses, stages
from attnopt.clustering.trained import SHAPES

DATA = Path(__file__).with_name("spike_steps.npz")
RATE = 3e-3  # Adam's learning rate
STEPS, PEAK = 64, 32
TURNS = 240  # directions for which the answer is computed
TASK = Task()


def counted(seed: int) -> np.ndarray:
    """How often each sequence, indexed by its tokens as binary digits, occurs in the training set of a run, as bytes."""
    tokens = training_data([seed], TASK, 2048)[0][0].numpy()
    return np.bincount(tokens @ (1 << np.arange(TASK.length)[::-1]), minlength=2**TASK.length).astype(np.uint8)


@functools.cache
def recorded() -> tuple[Models, Tensor, Tensor]:
    """The models after every step, the distinct training sequences, and how often each of these occurs."""
    with np.load(DATA, allow_pickle=False) as arrays:
        rows, counts = torch.from_numpy(arrays["weights"].astype(np.float64)), torch.from_numpy(arrays["counts"])
    parts = rows.split([math.prod(shape) for shape in SHAPES.values()], 1)
    weights = {name: part.unflatten(1, shape) for (name, shape), part in zip(SHAPES.items(), parts, strict=True)}
    tokens = torch.tensor(list(itertools.product((0, 1), repeat=TASK.length)))
    return Models(weights, "rms"), tokens[counts > 0], counts[counts > 0].double()


def _mean_losses(logits: Tensor, tokens: Tensor, counts: Tensor) -> Tensor:
    """The mean loss of each model over the training set."""
    truth = one_hot(tokens[:, : TASK.k].sum(1) % 2, 2).double()
    return losses(logits, truth) @ counts / counts.sum()


@functools.cache
def curves() -> tuple[list[float], list[float]]:
    """The training loss after every step, and the length of every step (root mean square, divided by the learning rate)."""
    models, tokens, counts = recorded()
    loss = torch.cat([_mean_losses(models[k].logits(tokens), tokens, counts) for k in range(len(models))])
    rows = torch.cat([models.weights[name].flatten(1) for name in SHAPES], 1)
    return loss.tolist(), (rows.diff(dim=0) / RATE).square().mean(1).sqrt().tolist()


class SpikeStepsExplorer(Explorer):
    """Sixty-four steps of Adam around the loss spike of a run: the curves, and the plane of sequence embeddings.

    Traits:
        step: the step after which the model is shown.
        data: weights after every step (base64 of float32), how often each sequence occurs in the training set (base64 of
            bytes, by number), and the loss after every step.
    """

    module = "spike_steps"
    alt = (
        "Left: two curves over 64 steps. The loss lies below a thousandth, jumps by a factor of a hundred at step 32, is "
        "small again one step later, and continues to flicker; steps grow from a fiftieth of the learning rate to twice it. "
        "Right: the plane of sequence embeddings. Clusters of the two labels alternate along a line that passes close to "
        "the origin; a ring shows the answer in each direction, and some clusters are beyond the edge of their arc."
    )
    step = traitlets.Int(PEAK, min=0, max=STEPS).tag(sync=True)
    data = traitlets.Dict().tag(sync=True)

    @traitlets.default("data")
    def _recorded_data(self) -> dict:
        with np.load(DATA, allow_pickle=False) as arrays:
            packed = {name: base64.b64encode(arrays[name].tobytes()).decode() for name in ("weights", "counts")}
        return packed | {"loss": curves()[0]}

    def compute(self) -> dict:
        """The step's effects: loss, wrong answers, lengths and rotations of ξ, losses under interventions, and the plane."""
        models, tokens, counts = recorded()
        share, k = counts / counts.sum(), self.step
        model, marked = models[k], marks(tokens, 2, torch.float64)[None]
        now = stages(model, marked)
        wrong = (now["logits"][0].argmax(-1) != tokens[:, : TASK.k].sum(1) % 2).double()
        lengths = now["sequence"][0].norm(dim=-1)
        prefixes, suffixes = sentence_parts(TASK)
        shown = torch.cat([prefixes.repeat_interleave(len(suffixes), 0), suffixes.repeat(len(prefixes), 1)], 1)
        found = {
            "loss": curves()[0][k],
            "wrong": (wrong @ share).item(),
            "length": (lengths @ share).item(),
            "shortest": lengths.min().item(),
            "sequence": model.stages(shown)["sequence"][0].tolist(),
            "answers": model.logits(shown)[0].argmax(-1).tolist(),
        }
        angles = (torch.arange(TURNS) + 0.5) * 2 * math.pi / TURNS
        ring = found["length"] * torch.stack([angles.cos(), angles.sin()], -1).double()
        found["ring"] = model.classify(ring[None])[0].argmax(-1).tolist()
        if k == 0:
            return found | dict.fromkeys(("loss_before", "step_length", "turn", "largest", "far", "layer", "others"))
        before = models[k - 1]
        held = stages(before, marked)
        cosines = torch.cosine_similarity(now["direction"][0], held["direction"][0], dim=-1).clamp(-1, 1)
        turns = cosines.acos().rad2deg()

        def loss(moved: Models, how: dict[str, str] | None = None) -> float:
            return _mean_losses(stages(moved, marked, held, how)["logits"], tokens, counts).item()

        only = {name: model.weights[name] for name in GROUPS["feed-forward"]}
        stay = {name: before.weights[name] for name in GROUPS["feed-forward"]}
        return found | {
            "loss_before": curves()[0][k - 1],
            "step_length": curves()[1][k - 1],
            "turn": (turns @ share).item(),
            "largest": turns.max().item(),
            "far": loss(model, {"sequence": "far"}),
            "layer": loss(before.replace(**only)),
            "others": loss(model.replace(**stay)),
        }

    def __repr__(self):
        return f"SpikeStepsExplorer(step={self.step})"
