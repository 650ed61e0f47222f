"""Layers as steps on one prompt in the plane: the paths for four preconditioners, and the effect of conditioning on each."""

import itertools
import math

import torch
import traitlets
from torch import Tensor

from attnbook.explorer import Explorer, Interval
from attnopt.in_context import optimal_step_sizes

# Latent covariates of three prompts, five examples each, and the latent weights; the covariance's axes are turned by 30°.
PROMPTS = (
    ((1.2, 0.3), (-0.4, 1.1), (0.7, -0.9), (-1.5, 0.2), (0.1, 0.6)),
    ((0.9, 1.0), (-1.1, -0.7), (0.5, 0.2), (1.6, 1.3), (-0.3, 0.4)),
    ((-0.6, 0.5), (0.3, -0.4), (0.8, 0.1), (-0.2, -0.7), (0.4, 0.9)),
)
WEIGHTS_LATENT, ANGLE, DEPTH = (0.9, 1.2), math.pi / 6, 8
METHODS = ("plain", "covariance", "optimal", "newton")


class LayerStepsExplorer(Explorer):
    """The weights that a transformer of plain layers holds after each layer, on one prompt with two features.

    Σ has the eigenvalues 1 and 1 / ``conditioning``; the prompt's latent examples and weights stay the same.

    Traits:
        method: the layers' matrix A: "plain" (-γI), "covariance" (-γΣ⁻¹), "optimal" (Σ⁻¹ times the steps that minimize the
            in-context loss), or "newton" (-γH⁻¹ with the prompt's Gram matrix H).
        layers: number of layers.
        step: the step size γ.
        conditioning: ratio of the eigenvalues of Σ.
        prompt: index of the prompt, one of three.
    """

    module = "layer_steps"
    alt = (
        "Left: the plane of weights with ellipses of equal least-squares loss around the true weights, and the path of the "
        "iterates from zero, one point per layer. Right: the excess error after each layer on a logarithmic axis, one curve "
        "for each of four preconditioners."
    )
    method = traitlets.Enum(METHODS, default_value="plain").tag(sync=True)
    layers = traitlets.Int(5, min=1, max=DEPTH).tag(sync=True)
    step = Interval(0.8, 0.05, 2)
    conditioning = Interval(6.0, 1, 30)
    prompt = traitlets.Int(0, min=0, max=2).tag(sync=True)

    def _problem(self) -> tuple[Tensor, Tensor, Tensor]:
        """Σ, H and w⋆."""
        turn = torch.tensor([[math.cos(ANGLE), -math.sin(ANGLE)], [math.sin(ANGLE), math.cos(ANGLE)]], dtype=torch.float64)
        scales = torch.tensor([1.0, self.conditioning**-0.5], dtype=torch.float64)
        root, inverse = turn * scales @ turn.T, turn / scales @ turn.T
        covariates = torch.tensor(PROMPTS[self.prompt], dtype=torch.float64) @ root
        latent = torch.tensor(WEIGHTS_LATENT, dtype=torch.float64)
        return root @ root, covariates.T @ covariates / len(covariates), inverse @ latent

    def _path(self, method: str) -> Tensor:
        """w_0 … w_k, shape (k + 1, 2)."""
        covariance, gram, target = self._problem()
        steps = torch.tensor(
            optimal_step_sizes(2, 5, self.layers)[0].tolist() if method == "optimal" else [-self.step] * self.layers,
            dtype=torch.float64,
        )
        base = {"plain": torch.eye(2, dtype=torch.float64), "newton": gram}.get(method, covariance)
        path = [torch.zeros(2, dtype=torch.float64)]
        for a in steps:
            path.append(path[-1] + a * torch.linalg.solve(base, gram @ (path[-1] - target)))
        return torch.stack(path)

    def compute(self) -> dict:
        """Target, Gram matrix, the chosen method's path and least-squares losses, and every method's excess errors."""
        covariance, gram, target = self._problem()
        path = self._path(self.method)

        def quadratic(points: Tensor, matrix: Tensor) -> list[float]:
            apart = points - target
            return ((apart @ matrix) * apart).sum(-1).tolist()

        losses = [value / 2 for value in quadratic(path, gram)]
        raised = [after > before * (1 + 1e-9) + 1e-15 for before, after in itertools.pairwise(losses)]
        return {
            "target": target.tolist(),
            "gram": gram.tolist(),
            "path": path.tolist(),
            "losses": losses,
            "rise": raised.index(True) + 1 if True in raised else -1,
            "errors": {name: quadratic(self._path(name), covariance) for name in METHODS},
            "condition": torch.linalg.cond(gram).item(),
        }
