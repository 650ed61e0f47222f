"""Layers as steps of the feature flow: what a step costs in accuracy, and when a layer stops descending."""

import torch
import traitlets
from matplotlib.figure import Figure
from torch import Tensor

from attnopt.explorers.attention_field import TOKENS, WEIGHTS
from attnopt.regression import feature_flow, pointwise_cross_entropy, unroll
from bookkit.explorers.base import Explorer, Interval
from bookkit.plotting import BLUE, GREEN, ORANGE, PURPLE

SOFTNESS, TOTAL, BEYOND = 0.3, 2.0, 1e6
COUNTS = (1, 2, 4, 8, 16, 32, 64)
STYLES = {"euler": (BLUE, "-"), "printed": (ORANGE, ":"), "lie": (GREEN, "--"), "strang": (PURPLE, "-.")}


class LayersExplorer(Explorer):
    """A network of equal layers beside the flow that it discretises, for four kinds of layer.

    Three tokens with two features; labels 0.7 I + 0.1; softmax over the classes. θ is ``scale`` times three fixed class
    weights in the linear model, and ``scale`` times I/2 in the quadratic one.

    Traits:
        model: "linear" or "quadratic".
        scheme: "euler", "printed", "lie" or "strang", as in `attnopt.regression.block_step`.
        step: the time h that a layer takes; the papers' block has 1.
        layers: how many.
        scale: factor of θ.
    """

    module = "layers"
    alt = (
        "Left: the cross-entropy after each layer as marks beside the curve of the exact flow. Right: on logarithmic "
        "axes, the distance between network and flow at time 2 against the step, for four kinds of layer, with lines "
        "of slope one and two to compare."
    )
    model = traitlets.Enum(["linear", "quadratic"], default_value="linear").tag(sync=True)
    scheme = traitlets.Enum(list(STYLES), default_value="euler").tag(sync=True)
    step = Interval(1.0, 0.05, 4)
    layers = traitlets.Int(12, min=1, max=40).tag(sync=True)
    scale = Interval(1.0, 0.5, 3)

    def _problem(self) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens, weights and labels."""
        tokens, weights = (torch.tensor(value, dtype=torch.float64) for value in (TOKENS, WEIGHTS))
        if self.model == "quadratic":
            weights = torch.eye(2, dtype=torch.float64) / 2
        return tokens, self.scale * weights, (1 - SOFTNESS) * torch.eye(3, dtype=torch.float64) + SOFTNESS / 3

    def _losses(self, features: Tensor) -> list[float | None]:
        """The cross-entropy of features, shape (times, 3, 2); None where it is beyond a million."""
        _, weights, labels = self._problem()
        logits = features @ weights.mT if self.model == "linear" else features @ weights @ features.mT
        finite = logits.isfinite().flatten(1).all(1)
        values = torch.full((len(logits),), torch.inf, dtype=torch.float64)
        if finite.any():
            values[finite] = pointwise_cross_entropy(logits[finite], labels, "class")
        return _bounded(values)

    def compute(self) -> dict:
        """Cross-entropies of the network and of the flow, errors at time 2 for each scheme and step, and ‖θ‖²."""
        problem = self._problem()
        network = unroll(*problem, "class", self.layers, self.step, self.scheme, self.model)
        times = self.layers * self.step * (torch.arange(61, dtype=torch.float64) / 60) ** 2
        final = feature_flow(*problem, "class", torch.tensor([TOTAL], dtype=torch.float64), self.model)[0]

        def error(scheme: str, count: int) -> Tensor:
            return (unroll(*problem, "class", count, TOTAL / count, scheme, self.model)[-1] - final).norm()

        return {
            "losses": self._losses(network),
            "times": times.tolist(),
            "exact": self._losses(feature_flow(*problem, "class", times, self.model)),
            "errors": {name: _bounded(torch.stack([error(name, count) for count in COUNTS])) for name in STYLES},
            "operator_norm_squared": torch.linalg.matrix_norm(problem[1], 2).square().item(),
        }

    def draw_still(self, figure: Figure) -> None:
        """The cross-entropy of network and flow on the left, the errors on the right."""
        numbers = self.compute()
        left, right = figure.subplots(1, 2)
        losses = [float("nan") if value is None else value for value in numbers["losses"]]
        top = 1.15 * min(max(value for value in [*losses, *numbers["exact"]] if value == value), 3 * losses[0])
        left.plot(numbers["times"], numbers["exact"], color="black", lw=1, label="exact flow")
        at = [self.step * layer for layer in range(self.layers + 1)]
        left.plot(at, losses, "o", color=STYLES[self.scheme][0], ms=5, label=f"{self.scheme} layers")
        left.set(xlabel="time = step × layers", ylabel="cross-entropy", ylim=(0, top))
        left.legend(fontsize=8)
        steps = torch.tensor([TOTAL / count for count in COUNTS])
        for scheme, (colour, dashes) in STYLES.items():
            errors = [float("nan") if value is None else value for value in numbers["errors"][scheme]]
            right.plot(steps, errors, dashes, color=colour, lw=3 if scheme == self.scheme else 1.4, label=scheme)
        for order in (1, 2):
            guide = 0.3 * steps**order / 4**order
            right.plot(steps, guide, color="black", lw=0.8, alpha=0.6)
            right.text(steps[-1], guide[-1], f"order {order}", va="bottom", fontsize=8)
        right.set(xscale="log", yscale="log", xlabel="step", ylabel="distance to the flow at time 2")
        right.legend(fontsize=8)


def _bounded(values: Tensor) -> list[float | None]:
    """Numbers up to a million as they are, None for others."""
    return [value if value <= BEYOND else None for value in values.tolist()]
