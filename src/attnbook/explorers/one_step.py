"""One layer of linear attention reads one prompt: its prediction is that of one gradient step from 0."""

import math

import torch
import traitlets
from torch import Tensor

from attnbook.explorer import Explorer, Interval, Numbers
from attnopt.in_context import one_layer_optimum

MOST, PROMPTS = 30, 10
REACH = 2.0  # largest size of the weights' entries


def uniforms(draw: int, count: int) -> Tensor:
    """Pseudo-random numbers in (0, 1), fixed for each draw, shape (count,).

    They come from the congruential generator 1664525 s + 1013904223 modulo 2³², whose products are exact in floating point,
    so the page draws the same numbers.
    """
    state, found = 2654435769 * (draw + 3) % 2**32, []
    for _ in range(count):
        state = (1664525 * state + 1013904223) % 2**32
        found.append((state + 0.5) / 2**32)
    return torch.tensor(found, dtype=torch.float64)


def bent(pairs: Tensor) -> Tensor:
    """Pairs of standard normal numbers from pairs in (0, 1), shape (..., 2), by the Box–Muller transform."""
    radius, turn = (-2 * pairs[..., 0].log()).sqrt(), 2 * math.pi * pairs[..., 1]
    return torch.stack([radius * turn.cos(), radius * turn.sin()], -1)


def standard_normals(prompt: int) -> Tensor:
    """Thirty pairs of standard normal numbers, fixed for each prompt, shape (30, 2)."""
    return bent(uniforms(prompt, 2 * MOST).view(MOST, 2))


class OneStepExplorer(Explorer):
    """The prediction of one layer for a prompt in two dimensions: one gradient step from 0 on the examples' loss.

    The layer has P = e₃e₃ᵀ and Q = -η diag(I, 0); the loss is R(w) = 1/(2n) Σ(⟨w, xᵢ⟩ - yᵢ)², and Σ = diag(1, spread).

    Traits:
        weights: the true weights w⋆, a pair; the labels are yᵢ = ⟨w⋆, xᵢ⟩.
        query: the query's covariates x, a pair.
        examples: n, the number of examples in the prompt.
        prompt: index of the draw of covariates, one of ten.
        step: the step size η.
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
        """Examples and their shares of the step, H, and weights, losses, and predictions of step and best layer."""
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
