"""The gradient of a small clustering-head model, a rigorous bound, and the paper's bound, as the weights are scaled."""

import torch
import traitlets

from attnbook.explorer import Explorer, Interval
from attnopt.clustering import (
    Models,
    Task,
    closed_form_gradients,
    gradient_bound_of_paper,
    gradient_bound_terms,
    gradient_bound_terms_of_paper,
)

LOWEST, HIGHEST, POINTS = 0.001, 10.0, 61
SCALED = {"value": ("value",), "receptors": ("receptors",), "assemblers": ("assemblers",), "logits": ("value", "assemblers")}
# the first was trained on all 16 sequences and then rounded; the second is a draw of `Models.random`, rounded
MODELS = {
    "solved": {
        "token": [[-0.3, -0.8], [1.4, 2.8]],
        "position": [[0.3, 0.0], [0.3, 0.0], [0.3, 0.0], [0.4, 1.0]],
        "query": [0.0, -0.2],
        "value": [[-0.5, -0.1], [-0.2, 0.7]],
        "receptors": [[-1.2, 0.7], [2.0, -1.2], [0.9, 2.1], [-0.5, -1.4]],
        "assemblers": [[-0.5, -0.9, 0.9, 0.5], [-1.0, -1.9, 1.8, 1.1]],
    },
    "initial": {
        "token": [[1.1, -0.1], [0.1, -0.9]],
        "position": [[-0.1, 0.4], [-0.5, -0.2], [-0.2, 0.6], [0.9, 2.4]],
        "query": [-0.1, 0.0],
        "value": [[-0.2, -0.7], [0.4, 0.5]],
        "receptors": [[0.6, -0.1], [0.6, 0.7], [-0.2, 0.1], [0.7, -0.4]],
        "assemblers": [[-0.5, 0.4, 0.2, -0.2], [-0.1, 0.1, -0.4, -0.3]],
    },
}


class GradientBoundExplorer(Explorer):
    """The gradient norm of a small model on all 16 sequences, and two bounds, as its weights are scaled.

    The model has p = 2, L = 4, k = 3, d = 2, and four neurons.

    Traits:
        model: "solved", which classifies all sequences correctly, or "initial", as drawn at random.
        value: factor that multiplies V.
        receptors: factor that multiplies W.
        assemblers: factor that multiplies U.
        logits: factor that multiplies both V and U.
        along: the factor that varies along the curves.
    """

    module = "gradient_bound"
    alt = (
        "Left, on logarithmic axes: the gradient norm, our bound above it, and the paper's bound, as the value matrix is "
        "scaled from a thousandth to ten; below about a hundredth, the paper's bound runs below the gradient. Right: the "
        "same three numbers for query, value, receptors, and assemblers at the present scale."
    )
    model = traitlets.Enum(list(MODELS), default_value="solved").tag(sync=True)
    value = Interval(1.0, LOWEST, HIGHEST)
    receptors = Interval(1.0, LOWEST, HIGHEST)
    assemblers = Interval(1.0, LOWEST, HIGHEST)
    logits = Interval(1.0, LOWEST, HIGHEST)
    along = traitlets.Enum(list(SCALED), default_value="value").tag(sync=True)

    def _models(self, factors: torch.Tensor) -> Models:
        """Models in which the factor ``along`` takes the given values, one model for each value."""
        weights = {
            name: torch.tensor(value, dtype=torch.float64).repeat(len(factors), *[1] * torch.tensor(value).ndim)
            for name, value in MODELS[self.model].items()
        }
        for control, names in SCALED.items():
            factor = factors if control == self.along else torch.full_like(factors, getattr(self, control))
            for name in names:
                weights[name] = factor[:, None, None] * weights[name]
        return Models(weights, "unit")

    def _numbers(self, factors: torch.Tensor) -> dict[str, torch.Tensor]:
        """Norms of the four gradients and their bounds, shape (4, M), and the totals, shape (M,)."""
        problem = self._models(factors), *Task(2, 4, 3).all()
        true = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in closed_form_gradients(*problem).values()])
        ours = torch.stack(list(gradient_bound_terms(*problem).values()))
        theirs = torch.stack(list(gradient_bound_terms_of_paper(*problem).values()))
        return {
            "terms": torch.stack([true, ours, theirs]),
            "totals": torch.stack([true.norm(dim=0), ours.norm(dim=0), gradient_bound_of_paper(*problem)]),
        }

    def compute(self) -> dict:
        """Gradient, rigorous bound, and paper's bound along the chosen factor and, term by term, at its present value."""
        factors = torch.logspace(-3, 1, POINTS, dtype=torch.float64)
        here = torch.tensor([getattr(self, self.along)], dtype=torch.float64)
        now = self._numbers(here)
        totals = now["totals"][:, 0].tolist()
        tokens, targets = Task(2, 4, 3).all()
        stages = self._models(here).stages(tokens)
        wrong = stages["logits"][0].softmax(-1).gather(1, 1 - targets[:, None])
        return {
            "factors": factors.tolist(),
            "curves": self._numbers(factors)["totals"].tolist(),
            "terms": now["terms"][..., 0].tolist(),
            "totals": totals,
            "ratios": [bound / totals[0] for bound in totals[1:]] if totals[0] > 0 else None,
            "distance": wrong.mean().item(),
            "correct": int((wrong < 0.5).sum()),
            "least_length": stages["sequence"].norm(dim=-1).min().item(),
        }
