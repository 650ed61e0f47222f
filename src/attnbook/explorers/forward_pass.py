"""Layers of linear attention read one prompt: its labels become residuals, and the query's entry minus the prediction."""

import torch
import traitlets

from attnbook.explorer import Explorer, Interval, Numbers
from attnbook.explorers.one_step import PROMPTS, REACH, standard_normals
from attnopt.in_context import linear_transformer

MOST, DEPTH = 12, 8


class ForwardPassExplorer(Explorer):
    """The row of labels after each plain layer, and the weights of the gradient descent that the layers carry out.

    Each layer has P = e₃e₃ᵀ and Q = -η diag(I, 0); the loss is R(w) = 1/(2n) Σ(⟨w, xᵢ⟩ - yᵢ)², and Σ = diag(1, spread).
    Without the mask, every token attends to the query as well; the layers then take steps on the loss of the examples and
    the query, which counts as an example with label 0.

    Traits:
        weights: the true weights w⋆, a pair; the labels are yᵢ = ⟨w⋆, xᵢ⟩.
        query: the query's covariates x, a pair.
        layers: number of layers drawn.
        examples: n, the number of examples in the prompt.
        prompt: index of the draw of covariates, one of ten.
        step: the step size η.
        spread: the second eigenvalue of Σ.
        mask: "on", or "off" for layers without the mask.
    """

    module = "forward_pass"
    alt = (
        "Left: a plane of weights with elliptic contours around a star, and a path from 0 toward it, one point per layer. "
        "Right: the row of labels against the number of layers; the examples' lines shrink toward 0, and the query's line "
        "goes from 0 toward a dashed level, minus the query's label."
    )
    weights = Numbers([0.8, 1.6], -REACH, REACH)
    query = Numbers([1.2, 0.9], -3, 3)
    layers = traitlets.Int(8, min=0, max=DEPTH).tag(sync=True)
    examples = traitlets.Int(5, min=1, max=MOST).tag(sync=True)
    prompt = traitlets.Int(0, min=0, max=PROMPTS - 1).tag(sync=True)
    step = Interval(0.6, 0, 2.5)
    spread = Interval(0.5, 0.05, 1)
    mask = traitlets.Enum(["on", "off"], default_value="on").tag(sync=True)

    def compute(self) -> dict:
        """The labels after 0 … 8 layers, the weights, the losses on the examples, and the query's true label."""
        weights, query = (torch.tensor(value, dtype=torch.float64) for value in (self.weights, self.query))
        n = self.examples
        X = standard_normals(self.prompt)[:n] * torch.tensor([1, self.spread], dtype=torch.float64).sqrt()
        y = X @ weights
        tokens = torch.cat([X, query[None]])
        labels, path = [torch.cat([y, y.new_zeros(1)])], [torch.zeros(2, dtype=torch.float64)]
        if self.mask == "on":
            P, Q = torch.zeros(2, DEPTH, 3, 3, dtype=torch.float64)
            P[:, 2, 2], Q[:, 0, 0], Q[:, 1, 1] = 1, -self.step, -self.step
            prompt = torch.cat([tokens, labels[0][:, None]], 1)
            labels = list(linear_transformer(prompt[None], P, Q)[:, 0, :, 2])
        else:
            for _ in range(DEPTH):
                labels.append(labels[-1] - self.step / n * tokens @ (tokens.mT @ labels[-1]))
        seen = slice(n + (self.mask == "off"))
        for row in labels[:-1]:
            path.append(path[-1] + self.step / n * tokens[seen].mT @ row[seen])
        gram = X.mT @ X / n
        return {
            "labels": torch.stack(labels).tolist(),
            "path": torch.stack(path).tolist(),
            "losses": [(X @ w - y).square().sum().item() / (2 * n) for w in path],
            "gram": [gram[0, 0].item(), gram[0, 1].item(), gram[1, 1].item()],
            "curvatures": torch.linalg.eigvalsh(gram).clamp_min(0).flip(0).tolist(),
            "label": (weights @ query).item(),
        }
