"""The feature flow of two small models whose state is a plane, and the cross-entropy along it."""

import math

import torch
import traitlets
from matplotlib.figure import Figure
from torch import Tensor

from attnopt.explorers.attention_field import COLOURS, MARKERS, REACH, WEIGHTS
from attnopt.regression import feature_flow, feature_gradient, pointwise_cross_entropy
from bookkit.explorers.base import Explorer, Interval, Numbers

VIEW, HORIZON = 4.0, 40.0
LEVELS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)


class FeatureFlowExplorer(Explorer):
    """Where the flow carries features from three starts, and whether the cross-entropy falls all the way.

    The linear model has one token with two features and three classes, its softmax over the classes. The quadratic model
    has two tokens with one feature each and θ = 1, its softmax over the tokens.

    Traits:
        model: "linear" or "quadratic".
        formula: "true" follows minus the gradient, "printed" minus the papers' formula; they differ for the quadratic model.
        label: class of the linear model's token.
        exchanged: whether each token of the quadratic model has the other as its label, instead of itself.
        softness: labels are (1 - softness) one-hot + softness · uniform.
        time: how far the flow is followed.
        starts: three pairs.
        selected: index of the start that the sliders move.
    """

    module = "feature_flow"
    alt = (
        "Left: a plane of states with contours of the cross-entropy and three curves, the flow from three starts. "
        "Right: the cross-entropy along the three curves against time, with a dashed line at its infimum."
    )
    model = traitlets.Enum(["linear", "quadratic"], default_value="linear").tag(sync=True)
    formula = traitlets.Enum(["true", "printed"], default_value="true").tag(sync=True)
    label = traitlets.Int(0, min=0, max=2).tag(sync=True)
    exchanged = traitlets.Bool(False).tag(sync=True)
    softness = Interval(0.0, 0, 1)
    time = Interval(4.0, 0, HORIZON)
    starts = Numbers([[-2.5, -2.3], [-2.0, -0.25], [0.5, 1.2]], -REACH, REACH)
    selected = traitlets.Int(0, min=0, max=2).tag(sync=True)

    def _problem(self) -> tuple[Tensor, Tensor, str]:
        """Weights, labels and softmax axis."""
        if self.model == "linear":
            labels = (1 - self.softness) * torch.eye(3, dtype=torch.float64)[[self.label]] + self.softness / 3
            return torch.tensor(WEIGHTS, dtype=torch.float64), labels, "class"
        one_hot = torch.eye(2, dtype=torch.float64)
        labels = (1 - self.softness) * (one_hot.flip(0) if self.exchanged else one_hot) + self.softness / 2
        return torch.ones(1, 1, dtype=torch.float64), labels, "sequence"

    def _features(self, states: Tensor) -> Tensor:
        """States, shape (..., 2), as features: a row of two, or two rows of one."""
        return states.unsqueeze(-2 if self.model == "linear" else -1)

    def _losses(self, states: Tensor) -> Tensor:
        """The cross-entropy of states, shape (..., 2)."""
        weights, labels, axis = self._problem()
        features = self._features(states)
        logits = features @ weights.mT if self.model == "linear" else features @ weights @ features.mT
        return pointwise_cross_entropy(logits, labels, axis)

    def _follow(self, times: Tensor) -> Tensor:
        """States along the flow, shape (times, 3, 2)."""
        starts = self._features(torch.tensor(self.starts, dtype=torch.float64))
        flow = feature_flow(starts, *self._problem(), times, model=self.model, printed=self.formula == "printed")
        return flow.flatten(-2)

    def _infimum(self) -> float:
        """The labels' entropy, save that two tokens cannot both attend to the other more than to themselves."""
        labels = self._problem()[1]
        if self.model == "quadratic" and labels[0, 1] > 0.5:
            return 2 * math.log(2)
        return torch.special.entr(labels).sum().item()

    def compute(self) -> dict:
        """The paths and their cross-entropies on 61 times, states and gradients at the present time, and the infimum."""
        times = HORIZON * (torch.arange(61, dtype=torch.float64) / 60) ** 2
        all_times, rank = torch.cat([times, times.new_tensor([self.time])]).unique(return_inverse=True)
        seen = self._follow(all_times)[rank]
        paths, now = seen[:-1].transpose(0, 1), seen[-1]
        gradient = feature_gradient(self.model)
        return {
            "times": times.tolist(),
            "paths": paths.tolist(),
            "losses": self._losses(paths).tolist(),
            "now": now.tolist(),
            "now_losses": self._losses(now).tolist(),
            "gradient_norms": gradient(self._features(now), *self._problem()).flatten(1).norm(dim=1).tolist(),
            "infimum": self._infimum(),
        }

    def draw_still(self, figure: Figure) -> None:
        """The plane on the left, the cross-entropy in time on the right."""
        numbers = self.compute()
        left, right = figure.subplots(1, 2)
        ticks = torch.linspace(-VIEW, VIEW, 81, dtype=torch.float64)
        x, y = torch.meshgrid(ticks, ticks, indexing="xy")
        contours = left.contour(
            x, y, self._losses(torch.stack([x, y], -1)), LEVELS, colors="black", alpha=0.3, linewidths=0.8
        )
        left.clabel(contours, fontsize=7)
        roots = torch.tensor(numbers["times"]).sqrt()
        for index, (colour, marker) in enumerate(zip(COLOURS, MARKERS, strict=True)):
            path = torch.tensor(numbers["paths"][index])
            left.plot(*path.T, color=colour)
            left.plot(*path[0], marker, color=colour, mec="black", ms=9)
            left.plot(*numbers["now"][index], marker, color=colour, mec="black", ms=5)
            right.plot(roots, numbers["losses"][index], color=colour)
            right.plot(self.time**0.5, numbers["now_losses"][index], marker, color=colour, mec="black", ms=6)
        if self.model == "linear":
            for index, weight in enumerate(WEIGHTS):
                left.annotate("", weight, (0, 0), arrowprops={"arrowstyle": "->"})
                left.text(1.25 * weight[0], 1.25 * weight[1], f"$\\theta_{index + 1}$", ha="center", va="center")
            left.set(xlabel="first feature", ylabel="second feature")
        else:
            left.axline((0, 0), slope=1, color="black", linestyle=":", lw=1)
            left.set(xlabel="feature of token 1", ylabel="feature of token 2")
            right.axhline(2 * math.log(2), color="black", linestyle=":", lw=1, label="equal tokens: 2 log 2")
        left.set(xlim=(-VIEW, VIEW), ylim=(-VIEW, VIEW), aspect="equal")
        left.grid(False)
        right.axhline(numbers["infimum"], color="black", linestyle="--", lw=1, label="infimum")
        right.axvline(self.time**0.5, color="black", lw=0.8, alpha=0.5)
        shown = (0, 1, 5, 10, 20, 40)
        right.set_xticks([value**0.5 for value in shown], [str(value) for value in shown])
        right.set(xlabel="time (square-root scale)", ylabel="cross-entropy")
        right.legend(loc="upper right", fontsize=8)
