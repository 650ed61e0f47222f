"""The gradient of the quadratic model for two tokens with one feature, and the formula that the paper gives for it."""

import math

import torch
import traitlets
from torch import Tensor

from attnbook.explorer import Explorer, Interval, Numbers
from attnopt.regression import feature_flow, pointwise_cross_entropy, quadratic_gradient, quadratic_gradient_of_paper

REACH, HORIZON, VANISHING = 3.0, 20.0, 1e-9
LABELS = {
    "identity": [[1.0, 0.0], [0.0, 1.0]],
    "exchange": [[0.0, 1.0], [1.0, 0.0]],
    "first": [[1.0, 1.0], [0.0, 0.0]],
    "opposed": [[0.75, 0.375], [0.25, 0.625]],
}
FORMULAS = {"true": quadratic_gradient, "paper": quadratic_gradient_of_paper}


class QuadraticFieldExplorer(Explorer):
    """The gradient of the quadratic model N = θZZᵀ for two tokens with one feature, the paper's formula for it, and flows.

    Softmax is over the tokens. The formula is Corollary 2 of Actor, Gruber, Cyr (2025).

    Traits:
        point: the features of the two tokens.
        theta: the weight θ, a number.
        labels: the labels C: "identity" (each token itself), "exchange" (each token the other), "first" (both columns of C
            choose token 1), or "opposed" (columns (6, 2)/8 and (3, 5)/8, with which formula and gradient can be opposite).
    """

    module = "quadratic_field"
    alt = (
        "Left: the plane of two features with numbered contours of the cross-entropy and a shaded region where the paper's "
        "formula leads uphill. From the point (2, 1/4), inside it, a solid blue curve follows the negative gradient down "
        "to the right, a dashed orange one the negative of the paper's formula up to the left, to the diagonal of equal "
        "tokens. Right: the cross-entropy against time, which falls to almost 0 along the first and climbs to 2 log 2 along "
        "the second."
    )
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
