"""One sequence of sparse modular addition on its way through the model, random or built by hand."""

import torch
import traitlets
from matplotlib.figure import Figure

from attnopt.clustering import Models
from attnopt.explorers.ideal_circuit import IdealCircuitExplorer
from bookkit.explorers.base import Explorer, Interval
from bookkit.plotting import BLUE, GREEN, GREY, ORANGE

LENGTH, PREFIX = 12, 5
SCALES = {"query": "query_scale", "value": "value_scale", "assemblers": "neuron_scale"}
PARTS = {"token", "position", "query", "value", "receptors", "assemblers"}
SHAPES = {"token": (2, 2), "position": (LENGTH, 2)}


def _chosen() -> dict:
    """Weights of a random model, to four digits, and of the circuit."""
    random = Models.random(1, 2, LENGTH, norm="unit", generator=torch.Generator().manual_seed(4)).weights
    ideal = IdealCircuitExplorer().model().weights
    return {
        "random": {name: (value[0] * 1e4).round().div(1e4).tolist() for name, value in random.items()},
        "ideal": {name: value[0].tolist() for name, value in ideal.items()},
    }


class TaskModelExplorer(Explorer):
    """A sequence of twelve zeros and ones, of which five count, and what each stage of a model with d = 2 makes of it.

    Traits:
        tokens: twelve tokens, 0 or 1.
        model: "random" or "ideal", the paper's Figure 1 with weights set by hand.
        query_scale: factor of the query.
        value_scale: factor of the value matrix.
        neuron_scale: factor of the feed-forward layer's output.
        weights: of the two models, a dict of lists for each, named and shaped as one of `Models` without biases.
    """

    module = "task_model"
    alt = (
        "Left: the unit circle with the normalised embeddings of twelve tokens, larger where attention is larger, and the "
        "query as an arrow. Middle: attention as twelve bars, five of the prefix and seven of the suffix. Right: the plane "
        "with the sequence embedding, the output, the feed-forward layer's curve and the line between the classes."
    )
    tokens = traitlets.List(
        traitlets.Int(min=0, max=1), default_value=[1, 0, 1, 1, 0, 0, 1, 0, 0, 1, 1, 0], minlen=LENGTH, maxlen=LENGTH
    ).tag(sync=True)
    model = traitlets.Enum(["random", "ideal"], default_value="random").tag(sync=True)
    query_scale = Interval(1.0, 0, 3)
    value_scale = Interval(1.0, -2, 2)
    neuron_scale = Interval(1.0, 0, 2)
    weights = traitlets.Dict().tag(sync=True)

    @traitlets.default("weights")
    def _default_weights(self):
        return _chosen()

    @traitlets.validate("weights")
    def _check_weights(self, proposal):
        weights = proposal["value"]
        if set(weights) != {"random", "ideal"}:
            raise traitlets.TraitError(f"weights must be of the models random and ideal, got {sorted(weights)}")
        for name, params in weights.items():
            try:
                arrays = _as_model(params).weights
            except (TypeError, ValueError) as error:
                raise traitlets.TraitError(f"weights of {name}: {error}") from None
            if set(arrays) != PARTS:
                raise traitlets.TraitError(
                    f"weights of {name} must be {', '.join(sorted(PARTS))}, for that is all the page computes with; "
                    f"got {', '.join(sorted(arrays))}"
                )
            for part, shape in SHAPES.items():
                if arrays[part].shape[1:] != shape:
                    raise traitlets.TraitError(f"weights of {name}: {part} must have shape {shape}")
            if not all(value.isfinite().all() for value in arrays.values()):
                raise traitlets.TraitError(f"weights of {name} must be finite")
        return weights

    def bounds(self, kernel: bool = True) -> dict:
        """As of any explorer; tokens are 0 or 1."""
        return super().bounds(kernel) | {"tokens": {"values": [0, 1]}}

    def _scaled(self) -> Models:
        """The chosen model with its three factors."""
        model = _as_model(self.weights[self.model])
        return model.replace(**{name: model.weights[name] * getattr(self, scale) for name, scale in SCALES.items()})

    def compute(self) -> dict:
        """What the stages hold for the sequence, the probabilities, and the label."""
        stages = self._scaled().stages(torch.tensor([self.tokens]))
        logits = stages["logits"]
        kept = ("embeddings", "attention", "sequence", "direction", "output")
        return {name: stages[name][0, 0].tolist() for name in kept} | {
            "logits": logits[0, 0].tolist(),
            "probabilities": logits[0, 0].softmax(-1).tolist(),
            "label": sum(self.tokens[:PREFIX]) % 2,
        }

    def draw_still(self, figure: Figure) -> None:
        """The circle, the attention and the plane."""
        numbers, params = self.compute(), self._scaled().weights
        circle, bars, plane = figure.subplots(1, 3)
        turn = torch.linspace(0, 2 * torch.pi, 721, dtype=torch.float64)
        around = torch.stack([turn.cos(), turn.sin()], -1)
        circle.plot(*around.T, color=GREY, lw=0.8)
        for t, (z, weight) in enumerate(zip(numbers["embeddings"], numbers["attention"], strict=True)):
            colour, face = (BLUE, BLUE) if t < PREFIX else (ORANGE, "none")
            circle.plot(*z, "o^"[self.tokens[t]], color=colour, mfc=face, ms=4 + 14 * weight**0.5, alpha=0.8)
        query = params["query"][0]
        tip = 0.85 * query / query.norm().clamp(min=1e-12) * (1 - (-query.norm()).exp())
        circle.annotate("", tip.tolist(), (0, 0), arrowprops={"arrowstyle": "-|>", "color": "black", "shrinkB": 0})
        circle.set(aspect="equal")
        circle.axis("off")
        colours = [BLUE] * PREFIX + [ORANGE] * (LENGTH - PREFIX)
        bars.bar(range(1, LENGTH + 1), numbers["attention"], color=colours)
        bars.set(xlabel="token", ylabel="attention", xticks=range(1, LENGTH + 1))
        bars.set_xticklabels([str(token) for token in self.tokens], fontsize=8)
        curve = torch.nn.functional.gelu(around @ params["receptors"][0].T) @ params["assemblers"][0].T
        plane.plot(*curve.T, color=GREY, lw=1)
        difference = params["token"][0, 1] - params["token"][0, 0]
        plane.axline((0, 0), (-difference[1].item(), difference[0].item()), color=GREY, ls=":", lw=1)
        plane.plot(*zip(numbers["sequence"], numbers["output"], strict=True), color=GREY, lw=1)
        plane.plot(*numbers["sequence"], "o", color=BLUE, ms=8, label="ξ")
        plane.plot(*numbers["output"], "s", color=GREEN, ms=8, label="ψ")
        plane.legend(fontsize=8)
        own = max(0.1, *(abs(value) for value in numbers["sequence"] + numbers["output"]))
        reach = 1.15 * max(own, curve.abs().max().item())
        scale = "linear" if reach < 3 else "asinh"
        plane.set(xscale=scale, yscale=scale, xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")

    def __repr__(self):
        shown = {name: value for name, value in self.state().items() if name != "weights"}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def _as_model(weights: dict) -> Models:
    """Lists as an ensemble of one model."""
    return Models({name: torch.tensor(value, dtype=torch.float64)[None] for name, value in weights.items()}, "unit")
