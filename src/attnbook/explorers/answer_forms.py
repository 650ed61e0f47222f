"""A trained transformer on a regression task that the reader draws: its answer after each part, and gradient descent's."""

import base64
import functools
from pathlib import Path

import numpy as np
import torch
import traitlets
from torch import Tensor

from attnbook.explorer import Explorer, Interval, Numbers
from attnopt.standard import Transformer, as_tokens

DATA = Path(__file__).with_name("answer_forms.npz")
LOW, HIGH, RATE, NOISE = -3.0, 3.0, 0.8, 0.5
POINTS = [[-1.6, -1.1], [-1.1, -1.3], [-0.7, -0.2], [-0.3, -0.6], [0.4, 0.6], [0.8, 0.3], [1.2, 1.4], [1.7, 1.1]]
GRID = [LOW + (HIGH - LOW) * k / 40 for k in range(41)]


@functools.cache
def recorded() -> tuple[Transformer, Tensor]:
    """The trained model, and for each state the weights of the probe that reads the answer; the last is its constant."""
    with np.load(DATA, allow_pickle=False) as arrays:
        flat, probes = (torch.from_numpy(arrays[name].astype(np.float64)) for name in ("weights", "probes"))
    model = Transformer(2, 1, 33, width=32).double().requires_grad_(False)
    torch.nn.utils.vector_to_parameters(flat, model.parameters())
    return model, probes


class AnswerFormsExplorer(Explorer):
    """The answer of a three-layer transformer, trained on noisy lines through 0, to eight labeled points and a query.

    Traits:
        points: x and y of each of the eight labeled points.
        query: the x at which the transformer answers.
        part: the part after which the state is read: 0 for the embedding, then attention and MLP of each layer in turn.
        steps: number of gradient steps on the squared error, from slope 0 with step size 0.8.
        data: the weights of the model and of the linear probes that read its states (base64 of float32).
    """

    module = "answer_forms"
    alt = (
        "Left: eight points near a line, a solid curve, the reading of a state for each query, and two lines, gradient "
        "descent after some steps and Bayes' rule. Right: at one query, the reading after the embedding and after each of "
        "six parts. It rises in the first two layers, to twice the answer of Bayes' rule, and comes closer in the third."
    )
    points = Numbers(POINTS, LOW, HIGH)
    query = Interval(1.8, LOW, HIGH)
    part = traitlets.Int(4, min=0, max=6).tag(sync=True)
    steps = traitlets.Int(1, min=0, max=20).tag(sync=True)
    data = traitlets.Dict().tag(sync=True)

    @traitlets.default("data")
    def _recorded_data(self) -> dict:
        with np.load(DATA, allow_pickle=False) as arrays:
            return {name: base64.b64encode(arrays[name].tobytes()).decode() for name in ("weights", "probes")}

    def compute(self) -> dict:
        """The state's readings on a grid, all readings at the query, and slopes and answers of the two methods."""
        model, probes = recorded()
        queries = torch.tensor([*GRID, self.query], dtype=torch.float64)
        points = torch.tensor(self.points, dtype=torch.float64)
        covariates = torch.cat([points[:, 0].expand(len(queries), -1), queries[:, None]], 1)
        labels = torch.cat([points[:, 1].expand(len(queries), -1), torch.zeros(len(queries), 1).double()], 1)
        states = [state[:, -1] for state in model.states(as_tokens(covariates[..., None], labels))]
        readings = torch.stack(states) @ probes[:, :-1, None]
        readings = readings[..., 0] + probes[:, -1:]
        n, square, product = len(points), points[:, 0].square().sum(), points.prod(1).sum()
        slope = 0.0
        for _ in range(self.steps):
            slope = slope + RATE * (product - square * slope) / n
        return {
            "curve": readings[self.part, :-1].tolist(),
            "readings": readings[:, -1].tolist(),
            "output": model.read(states[-1])[-1, 0].item(),
            "descent": float(slope),
            "bayes": (product / (square + NOISE**2)).item(),
            "answers": [float(slope) * self.query, (product / (square + NOISE**2)).item() * self.query],
        }
