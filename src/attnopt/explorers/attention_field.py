"""The descent field of one token among three, and the attention matrix on either axis."""

import math

import torch
import traitlets
from matplotlib.figure import Figure

from attnopt.regression import cross_attention, linear_gradient, pointwise_cross_entropy
from attnopt.softmax import softmax
from bookkit.explorers.base import Explorer, Interval, Numbers
from bookkit.plotting import BLUE, GREEN, GREY, ORANGE

REACH = 3.0
TOKENS = [[-0.9, 0.9], [1.4, 1.6], [-0.2, -1.9]]
WEIGHTS = [[1.7, 0.3], [-1.0, 1.4], [-0.6, -1.5]]
COLOURS, MARKERS = (BLUE, ORANGE, GREEN), ("o", "^", "s")


class AttentionFieldExplorer(Explorer):
    """Three tokens with two features and three classes: where the gradient sends a token, and what it attends to.

    The labels are (1 - softness) I + softness / 3, which are normalised along both axes.

    Traits:
        tokens: Z, three pairs.
        weights: θ, three pairs.
        softness: 0 (one-hot) to 1 (uniform).
        axis: "class" or "sequence".
        selected: index of the token whose field is drawn.
    """

    module = "attention_field"
    alt = (
        "Left: the plane of two features with three class weights, the triangle they span, three tokens, and arrows for "
        "the direction in which the cross-entropy of the chosen token falls. Right: the three by three attention matrix."
    )
    tokens = Numbers(TOKENS, -REACH, REACH)
    weights = Numbers(WEIGHTS, -math.inf, math.inf)
    softness = Interval(0.0, 0, 1)
    axis = traitlets.Enum(["class", "sequence"], default_value="class").tag(sync=True)
    selected = traitlets.Int(0, min=0, max=2).tag(sync=True)

    def _tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Features, weights and labels."""
        features, weights = (torch.tensor(value, dtype=torch.float64) for value in (self.tokens, self.weights))
        labels = (1 - self.softness) * torch.eye(3, dtype=torch.float64) + self.softness / 3
        return features, weights, labels

    def compute(self) -> dict:
        """Attention, its output CA(Z, θ), the labels' target Cθ, the gradient and the cross-entropy."""
        features, weights, labels = self._tensors()
        logits = features @ weights.mT
        return {
            "attention": softmax(logits, self.axis).tolist(),
            "output": cross_attention(features, weights, self.axis).tolist(),
            "target": (labels @ weights).tolist(),
            "gradient": linear_gradient(features, weights, labels, self.axis).tolist(),
            "loss": pointwise_cross_entropy(logits, labels, self.axis).item(),
        }

    def draw_still(self, figure: Figure) -> None:
        """The field on the left, the attention matrix on the right."""
        features, weights, labels = self._tensors()
        left, right = figure.subplots(1, 2)
        ticks = torch.linspace(-REACH, REACH, 13, dtype=torch.float64)[1:-1]
        grid = torch.cartesian_prod(ticks, ticks)
        moved = features.expand(len(grid), 3, 2).clone()
        moved[:, self.selected] = grid
        field = -linear_gradient(moved, weights, labels, self.axis)[:, self.selected]
        field = field / (1 + field.norm(dim=1, keepdim=True))
        left.quiver(*grid.T, *field.T, color=GREY, alpha=0.7, width=0.005, scale=18)
        left.fill(*weights.T, fill=False, linestyle=":", lw=1.2)
        for index in range(3):
            left.plot(*weights[index], MARKERS[index], mfc="none", mec=COLOURS[index], mew=2)
            left.annotate(f"$\\theta_{index + 1}$", weights[index].tolist(), xytext=(6, 4), textcoords="offset points")
            size = 11 if index == self.selected else 8
            left.plot(*features[index], MARKERS[index], color=COLOURS[index], mec="black", ms=size)
        left.set(xlabel="first feature", ylabel="second feature", xlim=(-REACH, REACH), ylim=(-REACH, REACH))
        left.set_aspect("equal")
        left.grid(False)
        attention = self.compute()["attention"]
        right.imshow(attention, vmin=0, vmax=2, cmap="Blues")
        for row in range(3):
            for column in range(3):
                right.text(column, row, f"{attention[row][column]:.2f}", ha="center", va="center")
        right.set_xticks(range(3), [f"$\\theta_{index + 1}$" for index in range(3)])
        right.set_yticks(range(3), ["token 1", "token 2", "token 3"])
        right.set(xlabel="class")
        right.grid(False)
