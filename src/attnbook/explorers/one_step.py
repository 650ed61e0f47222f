"""One layer of linear attention reads one prompt: its prediction is that of one gradient step from 0."""

import math

import torch
import traitlets
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from attnbook.explorer import Explorer, Interval, Numbers
from attnbook.plotting import BLUE, GREEN, ORANGE, PURPLE, YELLOW
from attnopt.in_context import one_layer_optimum

MOST, PROMPTS = 30, 10
REACH, VIEW, SPACE = 2.0, 3.5, 3.0  # of the weights, and half the sides of the two pictures


def uniforms(draw: int, count: int) -> Tensor:
    """Numbers in (0, 1), always the same for a draw, shape (count,).

    From the congruential generator 1664525 s + 1013904223 modulo 2³², whose products a float holds exactly, so that the page
    draws the same.
    """
    state, found = 2654435769 * (draw + 3) % 2**32, []
    for _ in range(count):
        state = (1664525 * state + 1013904223) % 2**32
        found.append((state + 0.5) / 2**32)
    return torch.tensor(found, dtype=torch.float64)


def bent(pairs: Tensor) -> Tensor:
    """Pairs of standard normal numbers from pairs in (0, 1), shape (..., 2), as Box and Muller bend them."""
    radius, turn = (-2 * pairs[..., 0].log()).sqrt(), 2 * math.pi * pairs[..., 1]
    return torch.stack([radius * turn.cos(), radius * turn.sin()], -1)


def standard_normals(prompt: int) -> Tensor:
    """Thirty pairs of standard normal numbers, always the same for a prompt, shape (30, 2)."""
    return bent(uniforms(prompt, 2 * MOST).view(MOST, 2))


def contour(axis: Axes, numbers: dict, weights: list[float]) -> tuple[Tensor, Tensor, Tensor]:
    """Level lines of the loss on the examples around w⋆ in the plane of weights, and the grid and the loss on it."""
    ticks = torch.linspace(-SPACE, SPACE, 121, dtype=torch.float64)
    u, v = torch.meshgrid(ticks, ticks, indexing="xy")
    h11, h12, h22 = numbers["gram"]
    du, dv = u - weights[0], v - weights[1]
    loss = (h11 * du**2 + 2 * h12 * du * dv + h22 * dv**2) / 2
    levels = [numbers["curvatures"][0] / 8 * k**2 for k in range(1, 10)]
    axis.contour(u, v, loss, levels, colors="black", alpha=0.3, linewidths=0.8)
    return u, v, loss


class OneStepExplorer(Explorer):
    """A prompt in two dimensions and what one layer makes of it: one gradient step from 0 on the examples' loss.

    The layer has P = e₃e₃ᵀ and Q = -η diag(I, 0); the loss is R(w) = 1/(2n) Σ(⟨w, xᵢ⟩ - yᵢ)², and Σ = diag(1, spread).

    Traits:
        weights: w⋆, a pair; the labels are yᵢ = ⟨w⋆, xᵢ⟩.
        query: x, a pair.
        examples: n of them in the prompt.
        prompt: which of ten draws of covariates.
        step: η.
        spread: the second eigenvalue of Σ.
    """

    module = "one_step"
    alt = (
        "Left: a plane of examples, circles where the label is positive and hollow triangles where it is negative, a square "
        "for the query, and two lines through 0, where labels and predictions change their sign. Right: a plane of weights "
        "with the elliptic contours of the examples' loss around a star, and an arrow from 0 across the contours, the "
        "gradient step, which does not point straight at the star; a diamond for the best layer."
    )
    weights = Numbers([0.8, 1.6], -REACH, REACH)
    query = Numbers([-1.2, -0.9], -3, 3)
    examples = traitlets.Int(8, min=1, max=MOST).tag(sync=True)
    prompt = traitlets.Int(0, min=0, max=PROMPTS - 1).tag(sync=True)
    step = Interval(0.8, 0, 2.5)
    spread = Interval(0.3, 0.05, 1)

    def compute(self) -> dict:
        """Examples and their pushes, H, the weights of one step and of the best layer, their losses and predictions."""
        weights, query = (torch.tensor(value, dtype=torch.float64) for value in (self.weights, self.query))
        spectrum, n = torch.tensor([1, self.spread], dtype=torch.float64), self.examples
        X = standard_normals(self.prompt)[:n] * spectrum.sqrt()
        y, gram = X @ weights, X.mT @ X / n
        pushes = self.step / n * y[:, None] * X
        reached = self.step * gram @ weights
        best = -one_layer_optimum(torch.diag(spectrum), n)
        trained = best @ gram @ weights
        curvatures = torch.linalg.eigvalsh(gram).clamp_min(0)
        (u, v), (right, up) = self.weights, reached.tolist()

        def loss(w: Tensor) -> float:
            return (X @ w - y).square().sum().item() / (2 * n)

        return {
            "covariates": X.tolist(),
            "labels": y.tolist(),
            "pushes": pushes.tolist(),
            "gram": [gram[0, 0].item(), gram[0, 1].item(), gram[1, 1].item()],
            "curvatures": curvatures.flip(0).tolist(),
            "reached": reached.tolist(),
            "steps": best.diagonal().tolist(),
            "trained": trained.tolist(),
            "losses": {"start": loss(0 * weights), "reached": loss(reached), "trained": loss(trained)},
            "label": (weights @ query).item(),
            "longest": 2 / curvatures[-1].item(),
            "turned": abs(math.degrees(math.atan2(u * up - v * right, u * right + v * up or 0.0))),
            "predictions": {"reached": (reached @ query).item(), "trained": (trained @ query).item()},
        }

    def draw_still(self, figure: Figure) -> None:
        """The prompt on the left, the plane of weights on the right."""
        numbers = self.compute()
        left, right = figure.subplots(1, 2)
        X, y = torch.tensor(numbers["covariates"]), torch.tensor(numbers["labels"])
        size, positive = 14 + 45 * y.abs(), y >= 0
        left.scatter(*X[positive].T, s=size[positive], color=BLUE, label="label > 0")
        left.scatter(*X[~positive].T, s=size[~positive], marker="^", facecolors="none", edgecolors=PURPLE, label="label < 0")
        left.plot(*self.query, "s", color=YELLOW, mec="black", ms=8, label="query")
        borders = ((self.weights, "--", "black", "label 0"), (numbers["reached"], ":", ORANGE, "prediction 0"))
        for (u, v), dashes, colour, name in borders:
            if math.hypot(u, v) > 1e-9:
                left.axline((0, 0), (-v, u), linestyle=dashes, color=colour, lw=1.2, label=name)
        left.set(xlim=(-VIEW, VIEW), ylim=(-VIEW, VIEW), aspect="equal", xlabel="first covariate", ylabel="second")
        u, v, loss = contour(right, numbers, self.weights)
        if numbers["losses"]["start"] > 1e-9:
            right.contour(u, v, loss, [numbers["losses"]["start"]], colors="black", linestyles="--", linewidths=1)
        chain = torch.cat([torch.zeros(1, 2), torch.tensor(numbers["pushes"]).cumsum(0)])
        right.plot(*chain.T, ".-", color=ORANGE, lw=0.8, ms=3, alpha=0.6)
        right.annotate("", numbers["reached"], (0, 0), arrowprops={"arrowstyle": "->", "color": ORANGE, "lw": 2})
        right.plot(*numbers["reached"], "o", color=ORANGE, mec="black", ms=6, label="$w_1$, one step")
        right.plot(*numbers["trained"], "D", color=GREEN, mec="black", ms=6, label="best layer")
        right.plot(*self.weights, "*", color="black", ms=12, label="$w_\\star$")
        right.plot(0, 0, "+", color="black", ms=8)
        right.set(xlim=(-SPACE, SPACE), ylim=(-SPACE, SPACE), aspect="equal", xlabel="first weight", ylabel="second")
        for axis in (left, right):
            axis.grid(False)
            axis.legend(
                fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, columnspacing=0.8, handletextpad=0.3
            )
