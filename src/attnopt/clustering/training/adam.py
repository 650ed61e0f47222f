"""Adam on the rows of many models at once."""

from dataclasses import dataclass

import torch
from torch import Tensor

BETAS, EPSILON = (0.9, 0.999), 1e-8


@dataclass(frozen=True)
class Adam:
    """Adam's moments, and how many steps it has made.

    Attributes:
        first: running mean of the gradients, shape (M, n).
        second: running mean of their squares, shape (M, n).
        steps: made so far, of every model, shape (M,), int64.
        betas: what is left of either mean after a step, β₁ and β₂.
        eps: added to the root of the squares, ε.
    """

    first: Tensor
    second: Tensor
    steps: Tensor
    betas: tuple[float, float] = BETAS
    eps: float = EPSILON

    @classmethod
    def of(cls, rows: Tensor, betas: tuple[float, float] = BETAS, eps: float = EPSILON) -> "Adam":
        """Adam before its first step on these rows."""
        steps = torch.zeros(len(rows), dtype=torch.long, device=rows.device)
        return cls(torch.zeros_like(rows), torch.zeros_like(rows), steps, betas, eps)

    def step(self, rows: Tensor, gradient: Tensor, rates: Tensor | float, shrink: Tensor | None = None) -> None:
        """Change rows and moments by a step; decoupled weight decay shrinks the rows before it."""
        slow, slower = self.betas
        self.steps.add_(1)
        counts = self.steps.tolist()
        factors = {count: (1 / (1 - slow**count), 1 - slower**count) for count in set(counts)}
        factors = torch.tensor([factors[count] for count in counts], dtype=torch.float64).to(rows)
        bias, bias_of_squares = factors.mT.unsqueeze(-1)
        self.first.lerp_(gradient, 1 - slow)
        self.second.mul_(slower).addcmul_(gradient, gradient, value=1 - slower)
        if shrink is not None:
            rows.mul_(shrink)
        root = (self.second / bias_of_squares).sqrt_().add_(self.eps)
        rows.addcdiv_(self.first * rates * bias, root, value=-1)
