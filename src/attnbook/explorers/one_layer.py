"""The optimal layer compared with Newton's method and plain gradient descent."""

import torch
import traitlets

from attnbook.explorer import Explorer, Interval
from attnopt.in_context import one_layer_loss, one_layer_optimum

COUNTS = [round(10 ** (k / 10)) for k in range(31)]  # examples, 1 to 1000
LOW, HIGH = 0.01, 10
LAYERS = ("optimal", "newton", "plain")


class OneLayerExplorer(Explorer):
    """The step sizes of the optimal layer (Ahn et al., 2023, Theorem 1) for three eigenvalues of Σ, and three exact losses.

    The losses are those of this layer and of the best multiples of Σ⁻¹ and of I.

    Traits:
        first, second, third: eigenvalues of Σ.
        examples: n, the number of examples in a prompt.
    """

    module = "one_layer"
    alt = (
        "Left: on logarithmic axes, the optimal step against the eigenvalue, a curve that joins the line one over "
        "lambda for large eigenvalues to the level n over the trace for small ones, with marks at three eigenvalues. "
        "Right: exact losses against the number of examples for the optimal layer and for the best multiples of the "
        "inverse covariance and of the identity."
    )
    first = Interval(3.0, LOW, HIGH)
    second = Interval(0.3, LOW, HIGH)
    third = Interval(0.03, LOW, HIGH)
    examples = traitlets.Int(10, min=1, max=1000).tag(sync=True)

    def compute(self) -> dict:
        """Step sizes in the three eigendirections, and losses at n and as functions of n."""
        spectrum = torch.tensor([self.first, self.second, self.third], dtype=torch.float64)
        covariance, trace = torch.diag(spectrum), spectrum.sum().item()

        def losses(n: int) -> dict[str, float]:
            moment = ((n + 1) * spectrum**2 + trace * spectrum) / n  # E[H²] in the eigenbasis

            def multiple(direction):
                reach, cost = (spectrum**2 * direction).sum(), (moment * direction**2 * spectrum).sum()
                return one_layer_loss(-reach / cost * torch.diag(direction), covariance, n).item()

            return {
                "optimal": one_layer_loss(one_layer_optimum(covariance, n), covariance, n).item(),
                "newton": multiple(1 / spectrum),
                "plain": multiple(torch.ones_like(spectrum)),
            }

        curves = [losses(n) for n in COUNTS]
        steps = -one_layer_optimum(covariance, self.examples).diagonal()
        return {
            "trace": trace,
            "steps": steps.tolist(),
            "of_newton": (steps * spectrum).tolist(),
            "common": self.examples / trace,
            "losses": losses(self.examples),
            "curves": {name: [values[name] for values in curves] for name in LAYERS},
        }
