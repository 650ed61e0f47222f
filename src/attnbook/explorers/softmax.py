"""Softmax on the simplex, its change after a nudge of the scores, and log-sum-exp compared with the maximum."""

import math

import torch

from attnbook.explorer import Explorer, Interval, Numbers
from attnopt.softmax import smooth_maximum, softmax_jacobian


class SoftmaxExplorer(Explorer):
    """Softmax of three scores at a temperature, its change after a nudge, and log-sum-exp compared with the maximum.

    Traits:
        logits: the three scores.
        before: the scores before the nudge.
        temperature: what the scores are divided by.
    """

    module = "softmax"
    alt = (
        "Left: a triangle, the simplex of three weights, with a circle, a triangle and a square for the classes at its "
        "corners. The second score has risen, and the weights have moved from a small dot straight toward the second "
        "corner; around the larger dot an ellipse, where nudges of length 1 lead to first order, inside a dashed circle of "
        "radius one half. Right: three scores as bars; the smooth maximum lies between the maximum and the maximum plus "
        "T log 3."
    )
    logits = Numbers([math.log(2), math.log(2), -math.log(2)], -3, 3)
    before = Numbers([math.log(2), 0.0, -math.log(2)], -3, 3)
    temperature = Interval(1.0, 0.1, 3)

    def compute(self) -> dict:
        """Softmax of scores / T and T · LSE(scores / T), before and after the nudge, and the nudge's first-order effect.

        The result also has the two nonzero eigenpairs of the Jacobian diag(s) - s sᵀ at the present softmax s.
        """
        scores, before = (torch.tensor(value, dtype=torch.float64) for value in (self.logits, self.before))
        now, start = (torch.softmax(value / self.temperature, -1) for value in (scores, before))
        values, vectors = torch.linalg.eigh(softmax_jacobian(now))
        # The null vector is constant; the two others are those most nearly orthogonal to it.
        kept = vectors.sum(0).abs().argsort()[:2]
        kept = kept[values[kept].argsort(descending=True)]
        step = softmax_jacobian(start) @ (scores - before) / self.temperature
        height = smooth_maximum(scores, self.temperature)
        return {
            "softmax": now.tolist(),
            "start": start.tolist(),
            "smooth_maximum": height.item(),
            "rise": (height - smooth_maximum(before, self.temperature)).item(),
            "slope": (start @ (scores - before)).item(),
            "step": step.tolist(),
            "nudge": (scores - before).tolist(),
            "moved": (now - start).norm().item(),
            "first_order": step.norm().item(),
            "excess": (height - scores.max()).item(),
            "most": self.temperature * math.log(3),
            "eigenvalues": values[kept].tolist(),
            "eigenvectors": vectors.T[kept].tolist(),
        }
