"""The gradient of the quadratic model for two tokens with one feature, beside the formula that the paper gives for it."""

import math

import torch
import traitlets
from matplotlib.figure import Figure
from torch import Tensor

from attnbook.explorer import Explorer, Interval, Numbers
from attnbook.plotting import BLUE, GREY, ORANGE
from attnopt.regression import feature_flow, pointwise_cross_entropy, quadratic_gradient, quadratic_gradient_of_paper

REACH, HORIZON, VANISHING = 3.0, 20.0, 1e-9
LEVELS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)
LABELS = {
    "identity": [[1.0, 0.0], [0.0, 1.0]],
    "exchange": [[0.0, 1.0], [1.0, 0.0]],
    "first": [[1.0, 1.0], [0.0, 0.0]],
    "opposed": [[0.75, 0.375], [0.25, 0.625]],
}
FORMULAS = {"true": quadratic_gradient, "paper": quadratic_gradient_of_paper}
LOOKS = {"true": (BLUE, "-", "o", "gradient"), "paper": (ORANGE, "--", "^", "paper's formula")}


class QuadraticFieldExplorer(Explorer):
    """Two tokens with one feature and N = θZZᵀ: where the gradient and the paper's formula for it lead from a point.

    Softmax is over the tokens. The formula is Corollary 2 of Actor, Gruber, Cyr (2025).

    Traits:
        point: the features of the two tokens.
        theta: θ, a number.
        labels: "identity" (each token its own), "exchange" (each the other) "first" (both columns of C choose token 1)
            or "opposed" (columns (6, 2)/8 and (3, 5)/8, for which formula and gradient can be opposite).
    """

    module = "quadratic_field"
    alt = (
        "Left: the plane of two features with numbered contours of the cross-entropy and a shaded region where the paper's "
        "formula leads uphill. From the point (2, 1/4), inside it, a solid blue curve follows minus the gradient down to "
        "the right, a dashed orange one minus the paper's formula up to the left, to the diagonal of equal tokens. Right: "
        "the cross-entropy against time, which falls to almost 0 along the first and climbs to 2 log 2 along the second."
    )
    size = (7, 3.4)
    point = Numbers([2.0, 0.25], -REACH, REACH)
    theta = Interval(1.0, -1, 1.5)
    labels = traitlets.Enum(list(LABELS), default_value="identity").tag(sync=True)

    def _problem(self) -> tuple[Tensor, Tensor, str]:
        """Weights, labels and softmax axis."""
        weights, labels = ([[self.theta]], LABELS[self.labels])
        return torch.tensor(weights, dtype=torch.float64), torch.tensor(labels, dtype=torch.float64), "sequence"

    def _losses(self, points: Tensor) -> Tensor:
        """The cross-entropy at points of the plane, shape (..., 2)."""
        weights, labels, axis = self._problem()
        features = points.unsqueeze(-1)
        return pointwise_cross_entropy(features @ weights @ features.mT, labels, axis)

    def _vectors(self, points: Tensor) -> dict[str, Tensor]:
        """The gradient and the paper's formula at points of the plane."""
        return {name: formula(points.unsqueeze(-1), *self._problem()).squeeze(-1) for name, formula in FORMULAS.items()}

    def compute(self) -> dict:
        """Cross-entropy, both vectors and their cosine at the point, and the flows along minus each of them."""
        times = HORIZON * (torch.arange(61, dtype=torch.float64) / 60) ** 2
        point = torch.tensor(self.point, dtype=torch.float64)
        vectors = self._vectors(point)
        lengths = [vector.norm() for vector in vectors.values()]
        clear = min(lengths) > VANISHING
        flows = {
            name: feature_flow(point[:, None], *self._problem(), times, model="quadratic", printed=name == "paper")[..., 0]
            for name in FORMULAS
        }
        return {
            "loss": self._losses(point).item(),
            **{name: vector.tolist() for name, vector in vectors.items()},
            "cosine": (vectors["true"] @ vectors["paper"] / math.prod(lengths)).item() if clear else None,
            "times": times.tolist(),
            "flows": {name: flow.tolist() for name, flow in flows.items()},
            "losses": {name: self._losses(flow).tolist() for name, flow in flows.items()},
        }

    def draw_still(self, figure: Figure) -> None:
        """The plane on the left, the cross-entropy in time on the right."""
        numbers = self.compute()
        left, right = figure.subplots(1, 2)
        ticks = torch.linspace(-REACH, REACH, 121, dtype=torch.float64)
        plane = torch.stack(torch.meshgrid(ticks, ticks, indexing="xy"), -1)
        field = self._vectors(plane)
        left.contourf(ticks, ticks, (field["true"] * field["paper"]).sum(-1), [-math.inf, 0], colors=[GREY], alpha=0.3)
        contours = left.contour(ticks, ticks, self._losses(plane), LEVELS, colors="black", alpha=0.35, linewidths=0.8)
        left.clabel(contours, fontsize=7)
        roots = torch.tensor(numbers["times"]).sqrt()
        for name, (colour, dashes, marker, words) in LOOKS.items():
            flow, losses = torch.tensor(numbers["flows"][name]), numbers["losses"][name]
            left.plot(*flow.T, dashes, color=colour)
            left.plot(*flow[-1], marker, color=colour, mec="black", ms=7)
            right.plot(roots, losses, dashes, color=colour, label=f"minus the {words}")
            right.plot(roots[-1], losses[-1], marker, color=colour, mec="black", ms=7, clip_on=False)
            length = math.hypot(*numbers[name])
            if length > VANISHING:
                end = [z - value / (0.4 + length) for z, value in zip(self.point, numbers[name], strict=True)]
                look = {"arrowstyle": "-|>", "color": colour, "lw": 2.5, "shrinkA": 0, "shrinkB": 0}
                left.annotate("", end, self.point, arrowprops=look)
        left.plot(*self.point, "o", color="black", ms=7)
        left.set(xlabel="feature of token 1", ylabel="feature of token 2", xlim=(-REACH, REACH), ylim=(-REACH, REACH))
        left.set_title("shaded: the paper's formula leads uphill", fontsize=9)
        left.set_aspect("equal")
        left.grid(False)
        right.axhline(2 * math.log(2), color="black", linestyle=":", lw=1, label="equal tokens: 2 log 2")
        shown = (0, 1, 5, 10, 20)
        right.set_xticks([value**0.5 for value in shown], [str(value) for value in shown])
        highest = max(2 * math.log(2), *numbers["losses"]["true"], *numbers["losses"]["paper"])
        right.set(xlabel="time (square-root scale)", ylabel="cross-entropy", ylim=(0, 1.5 * highest))
        right.legend(loc="upper right", fontsize=8)
