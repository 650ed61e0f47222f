"""Softmax on the simplex, its Jacobian's axes, and log-sum-exp against the maximum."""

import torch
from matplotlib.figure import Figure

from attnopt.softmax import smooth_maximum, softmax_jacobian
from bookkit.explorers.base import Explorer, Interval, Numbers
from bookkit.plotting import BLUE, GREEN, ORANGE


class SoftmaxExplorer(Explorer):
    """Three logits and a temperature: where softmax stands, what its Jacobian does, how far LSE is from the maximum.

    Traits:
        logits: three numbers.
        temperature: what the logits are divided by.
    """

    module = "softmax"
    alt = (
        "Left: a triangle, the simplex of three probabilities, with softmax as a point and two segments through it, "
        "the eigenvectors of the Jacobian scaled by their eigenvalues, inside a dashed circle that stands for one half. "
        "Right: three logits as bars; the smooth maximum lies between the maximum and the maximum plus T log 3."
    )
    logits = Numbers([1.0, 0.3, -1.2], -3, 3)
    temperature = Interval(1.0, 0.1, 3)

    def compute(self) -> dict:
        """Softmax of logits / T, T · LSE(logits / T), and the two non-zero eigenpairs of the Jacobian at that softmax."""
        scores = torch.tensor(self.logits, dtype=torch.float64)
        probabilities = torch.softmax(scores / self.temperature, -1)
        values, vectors = torch.linalg.eigh(softmax_jacobian(probabilities))
        # The null vector is the constant one; the two others are those most nearly orthogonal to it.
        kept = vectors.sum(0).abs().argsort()[:2]
        kept = kept[values[kept].argsort(descending=True)]
        return {
            "softmax": probabilities.tolist(),
            "smooth_maximum": smooth_maximum(scores, self.temperature).item(),
            "eigenvalues": values[kept].tolist(),
            "eigenvectors": vectors.T[kept].tolist(),
        }

    def draw_still(self, figure: Figure) -> None:
        """The simplex on the left, the bars on the right."""
        numbers = self.compute()
        basis = torch.tensor([[-1, 1, 0], [-1, -1, 2]], dtype=torch.float64)
        basis = basis / basis.norm(dim=1, keepdim=True)
        left, right = figure.subplots(1, 2)
        corners = (basis @ torch.eye(3, dtype=torch.float64)).T
        left.fill(*corners.T, fill=False, lw=1.2)
        for index, (x, y) in enumerate(corners.tolist()):
            left.text(1.12 * x, 1.12 * y, str(index + 1), ha="center", va="center")
        at = basis @ torch.tensor(numbers["softmax"], dtype=torch.float64)
        for value, vector, colour in zip(numbers["eigenvalues"], numbers["eigenvectors"], (BLUE, GREEN), strict=True):
            step = value * (basis @ torch.tensor(vector, dtype=torch.float64))
            left.plot(*torch.stack([at - step, at + step]).T, color=colour, lw=3.5, solid_capstyle="round")
        circle = torch.linspace(0, 2 * torch.pi, 100, dtype=torch.float64)
        left.plot(at[0] + 0.5 * circle.cos(), at[1] + 0.5 * circle.sin(), ":", color="black", lw=1)
        left.plot(*at, "o", color=ORANGE, ms=9, mec="black")
        left.set_aspect("equal")
        left.axis("off")
        top, gap = max(self.logits), self.temperature * torch.log(torch.tensor(3.0)).item()
        for index, (logit, weight) in enumerate(zip(self.logits, numbers["softmax"], strict=True)):
            right.bar(index + 1, logit, color=BLUE, alpha=0.25 + 0.75 * weight, width=0.6)
        for value, style, colour, label in (
            (top + gap, ":", "black", "max + T log 3"),
            (numbers["smooth_maximum"], "-", ORANGE, "T·LSE(x/T)"),
            (top, "-", "black", "max"),
        ):
            right.axhline(value, linestyle=style, color=colour, lw=1.6, label=label)
        right.set_xticks([1, 2, 3])
        right.set_xlabel("class")
        right.set_ylabel("logit")
        right.legend(loc="lower left", fontsize=8)
