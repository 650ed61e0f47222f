"""The feature flow of three tokens, or of a pair of tokens from three starts, and the distances covered."""

import math

import torch
import traitlets
from torch import Tensor

from attnbook.explorer import Explorer, Interval, Numbers
from attnbook.explorers.attention_field import BY_HAND, CLASSES
from attnopt.regression import feature_flow, feature_gradient, pointwise_cross_entropy, separation_margin
from attnopt.softmax import softmax_jacobian

REACH, FIRST, HORIZON = 3.0, 0.1, 1000.0
LEVELS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)
FLAT = 1e-6  # class vectors that span a smaller area count as lying on a line


class FeatureFlowExplorer(Explorer):
    """Paths of the feature flow from three starts, the distances from 0, and the fall of the cross-entropy.

    The linear model has three tokens with two features and three classes; each token's class is its own index, and
    softmax is over the classes, so the tokens do not affect one another. The quadratic model has two tokens with one
    feature each and θ = 1, softmax over the tokens, and three starts of the pair.

    Traits:
        model: "linear" or "quadratic".
        formula: "true" follows minus the gradient, "paper" minus the paper's formula; they differ for the quadratic model.
        weights: the class vectors θ of the linear model, three pairs.
        exchanged: whether each token of the quadratic model has the other as its label, instead of itself.
        softness: labels are (1 - softness) one-hot + softness · uniform.
        time: the time until which the left picture follows the flow.
        shown: the quantity in the right picture, "distance" (from 0) or "loss".
        starts: the three starts, each a pair of features.
        selected: index of the start that the sliders move, and of the token whose cross-entropy the contours show.
    """

    module = "feature_flow"
    alt = (
        "Left: the plane of two features. Three hollow shapes are the class vectors, three filled ones the tokens at time "
        "0; a curve leads from each token, past its class vector, toward the edge. Right: the distance of the three tokens "
        "from 0 against time on a logarithmic axis; all three curves end on straight dashed lines that rise, the line of "
        "token 3 less steeply."
    )
    model = traitlets.Enum(["linear", "quadratic"], default_value="linear").tag(sync=True)
    formula = traitlets.Enum(["true", "paper"], default_value="true").tag(sync=True)
    weights = Numbers(CLASSES, -2, 2)
    exchanged = traitlets.Bool(False).tag(sync=True)
    softness = Interval(0.0, 0, 1)
    time = Interval(10.0, FIRST, HORIZON)
    shown = traitlets.Enum(["distance", "loss"], default_value="distance").tag(sync=True)
    starts = Numbers(BY_HAND, -REACH, REACH)
    selected = traitlets.Int(0, min=0, max=2).tag(sync=True)

    def _problem(self) -> tuple[Tensor, Tensor, str]:
        """Weights, labels (for the linear model, one row per token, each a separate problem), and softmax axis."""
        if self.model == "linear":
            labels = (1 - self.softness) * torch.eye(3, dtype=torch.float64) + self.softness / 3
            return torch.tensor(self.weights, dtype=torch.float64), labels[:, None], "class"
        one_hot = torch.eye(2, dtype=torch.float64)
        labels = (1 - self.softness) * (one_hot.flip(0) if self.exchanged else one_hot) + self.softness / 2
        return torch.ones(1, 1, dtype=torch.float64), labels, "sequence"

    def _features(self, states: Tensor) -> Tensor:
        """States, shape (..., 2), as features: a row of two, or two rows of one."""
        return states.unsqueeze(-2 if self.model == "linear" else -1)

    def _losses(self, states: Tensor, token: int | None = None) -> Tensor:
        """The cross-entropy of states, shape (..., 3, 2), or (..., 2) with one token's label."""
        weights, labels, axis = self._problem()
        if self.model == "linear" and token is not None:
            labels = labels[token]
        features = self._features(states)
        logits = features @ weights.mT if self.model == "linear" else features @ weights @ features.mT
        return pointwise_cross_entropy(logits, labels, axis)

    def _follow(self, times: Tensor) -> Tensor:
        """States along the flow, shape (times, 3, 2)."""
        starts = self._features(torch.tensor(self.starts, dtype=torch.float64))
        flow = feature_flow(starts, *self._problem(), times, model=self.model, printed=self.formula == "paper")
        return flow.flatten(-2)

    def _independent(self) -> bool:
        """Whether the model is linear and its class vectors are not on a line."""
        weights = self._problem()[0]
        return self.model == "linear" and abs(torch.linalg.det(weights[1:] - weights[0]).item()) > FLAT

    def _infimum(self) -> float | None:
        """The infimum of the cross-entropy of one token or of the pair; None for class vectors on a line.

        It is the labels' entropy, except that two tokens cannot both attend to the other more than to themselves.
        """
        labels = self._problem()[1]
        if self.model == "linear":
            return torch.special.entr(labels[0]).sum().item() if self._independent() else None
        return 2 * math.log(2) if labels[0, 1] > 0.5 else torch.special.entr(labels).sum().item()

    def _fates(self) -> dict:
        """For the linear model: margins of one-hot labels, or equilibria and final rates of convergence for soft labels."""
        weights, labels, axis = self._problem()
        found = dict.fromkeys(("margins", "growth", "rests", "rest_distances", "rates"))
        if self.model == "linear" and self.softness == 0:
            margins = found["margins"] = [separation_margin(weights, label, axis) for label in labels]
            if min(margins) > 0.05:
                found["growth"] = [math.log(10) / margin for margin in margins]
        elif self._independent():
            differences = weights[0] - weights[1:]
            logits = labels[:, 0, :1].log() - labels[:, 0, 1:].log()
            rests = torch.linalg.solve(differences, logits.mT).mT
            found |= {"rests": rests.tolist(), "rest_distances": rests.norm(dim=1).tolist()}
            hessians = weights.mT @ softmax_jacobian(labels[:, 0]) @ weights
            found["rates"] = torch.linalg.eigvalsh(hessians)[:, 0].tolist()
        return found

    def compute(self) -> dict:
        """Paths and losses at 62 times, states and gradient norms at the present time, infimum, and long-time behavior."""
        steps = torch.arange(61, dtype=torch.float64)
        times = torch.cat([torch.zeros(1, dtype=torch.float64), FIRST * 10 ** (steps / 15)])
        all_times, rank = torch.cat([times, times.new_tensor([self.time])]).unique(return_inverse=True)
        seen = self._follow(all_times)[rank]
        paths, now = seen[:-1], seen[-1]
        gradient = feature_gradient(self.model)
        return {
            "times": times.tolist(),
            "paths": paths.transpose(0, 1).tolist(),
            "losses": self._losses(paths).mT.tolist(),
            "now": now.tolist(),
            "now_losses": self._losses(now).tolist(),
            "gradient_norms": gradient(self._features(now), *self._problem()).flatten(1).norm(dim=1).tolist(),
            "infimum": self._infimum(),
            "distances": now.flatten(1).norm(dim=1).tolist(),
            **self._fates(),
        }
