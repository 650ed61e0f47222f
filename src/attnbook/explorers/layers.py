"""Layers as steps of the feature flow: the error of a step, and when a layer stops descending."""

import math

import torch
import traitlets
from torch import Tensor

from attnbook.explorer import Explorer, Interval, Numbers
from attnbook.explorers.attention_field import BY_HAND, CLASSES
from attnopt.regression import feature_flow, pointwise_cross_entropy, unroll

REACH, TOTAL, BEYOND, FAR = 3.2, 2.0, 1e6, 100.0
COUNTS = (1, 2, 4, 8, 16, 32, 64)
SCHEMES = ("euler", "printed", "lie", "strang")


class LayersExplorer(Explorer):
    """A network of equal layers and the flow that it discretizes, for four kinds of layer.

    Three tokens have two features and the labels (1 - softness) I + softness / 3; softmax is over the classes. In the linear
    model, θ is ``scale`` times three fixed class vectors; in the quadratic model, it is ``scale`` times I/2.

    Traits:
        model: "linear" or "quadratic".
        scheme: "euler", "printed" (the papers' block), "lie" or "strang", as in `attnopt.regression.block_step`.
        step: the step size h of a layer; the papers' block has h = 1.
        layers: number of layers.
        scale: factor that multiplies θ.
        softness: 0 (one-hot labels) to 1 (uniform ones).
        tokens: the tokens before the first layer, three pairs.
        shown: the right picture, "loss" (after each layer) or "order" (error against step size).
    """

    module = "layers"
    alt = (
        "Left: the plane of two features. Three hollow shapes are the class vectors, three filled ones the tokens before "
        "the first layer. A curve, the flow, leads from each token to a cross, where it comes to rest; a broken line with "
        "a dot at every layer, the network, jumps back and forth next to it. Right: the cross-entropy after each of "
        "twelve layers, as dots that rise, fall and go up and down above the falling curve of the flow."
    )
    model = traitlets.Enum(["linear", "quadratic"], default_value="linear").tag(sync=True)
    scheme = traitlets.Enum(SCHEMES, default_value="euler").tag(sync=True)
    step = Interval(1.0, 0.05, 4)
    layers = traitlets.Int(12, min=1, max=40).tag(sync=True)
    scale = Interval(2.3, 0.5, 3)
    softness = Interval(0.3, 0, 1)
    tokens = Numbers(BY_HAND, -REACH, REACH)
    shown = traitlets.Enum(["loss", "order"], default_value="loss").tag(sync=True)

    def _problem(self) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens, weights and labels."""
        tokens, weights = (torch.tensor(value, dtype=torch.float64) for value in (self.tokens, CLASSES))
        if self.model == "quadratic":
            weights = torch.eye(2, dtype=torch.float64) / 2
        labels = (1 - self.softness) * torch.eye(3, dtype=torch.float64) + self.softness / 3
        return tokens, self.scale * weights, labels

    def _losses(self, features: Tensor) -> list[float | None]:
        """The cross-entropy of features, shape (times, 3, 2); None where it exceeds a million."""
        _, weights, labels = self._problem()
        logits = features @ weights.mT if self.model == "linear" else features @ weights @ features.mT
        finite = logits.isfinite().flatten(1).all(1)
        values = torch.full((len(logits),), torch.inf, dtype=torch.float64)
        if finite.any():
            values[finite] = pointwise_cross_entropy(logits[finite], labels, "class")
        return _bounded(values)

    def compute(self) -> dict:
        """Paths and cross-entropies of network and flow, the flow's equilibria, errors at time 2, and ‖θ‖²."""
        problem = self._problem()
        network = unroll(*problem, "class", self.layers, self.step, self.scheme, self.model)
        times = self.layers * self.step * (torch.arange(61, dtype=torch.float64) / 60) ** 2
        final = feature_flow(*problem, "class", torch.tensor([TOTAL], dtype=torch.float64), self.model)[0]

        def error(scheme: str, count: int) -> Tensor:
            return (unroll(*problem, "class", count, TOTAL / count, scheme, self.model)[-1] - final).norm()

        flow = feature_flow(*problem, "class", times, self.model)
        norm = torch.linalg.matrix_norm(problem[1], 2).square().item()
        return {
            "path": _near(network),
            "flow": _near(flow),
            "rests": self._rests(),
            "losses": self._losses(network),
            "times": times.tolist(),
            "exact": self._losses(flow),
            "errors": {name: _bounded(torch.stack([error(name, count) for count in COUNTS]), FAR) for name in SCHEMES},
            "operator_norm_squared": norm,
            "stretch": self.step * norm,
        }

    def _rests(self) -> list | None:
        """The equilibria of the linear model's flow, where beliefs equal labels; None for one-hot labels."""
        _, weights, labels = self._problem()
        if self.model != "linear" or self.softness == 0:
            return None
        logits = labels[:, :1].log() - labels[:, 1:].log()
        return torch.linalg.solve(weights[0] - weights[1:], logits.mT).mT.tolist()


def _near(states: Tensor) -> list:
    """States, shape (times, 3, 2), as lists, pairs of None for tokens that are farther than a hundred from 0."""
    return [
        [token if math.hypot(*token) <= FAR else [None, None] for token in state]
        for state in states.nan_to_num(torch.inf, torch.inf, torch.inf).tolist()
    ]


def _bounded(values: Tensor, most: float = BEYOND) -> list[float | None]:
    """Numbers up to a million, or another bound, as they are, None for others."""
    return [value if value <= most else None for value in values.tolist()]
