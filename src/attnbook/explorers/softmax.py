"""Softmax on the simplex, what a nudge of the scores does to it, and log-sum-exp against the maximum."""

import math

import torch
from matplotlib.figure import Figure

from attnbook.explorer import Explorer, Interval, Numbers
from attnbook.plotting import BLUE, GREEN, GREY, ORANGE, PURPLE
from attnopt.softmax import smooth_maximum, softmax_jacobian

CLASSES = ((BLUE, "o"), (ORANGE, "^"), (GREEN, "s"))


class SoftmaxExplorer(Explorer):
    """Three scores and a temperature: where softmax stands, how a nudge moves it, how far LSE is from the maximum.

    Traits:
        logits: three scores.
        before: the scores before the nudge.
        temperature: what the scores are divided by.
    """

    module = "softmax"
    alt = (
        "Left: a triangle, the simplex of three weights, with a circle, a triangle and a square for the classes at its "
        "corners. The second score has risen, and the weights have moved from a small dot straight towards the second "
        "corner; around the larger dot an ellipse, where nudges of length 1 lead to first order, inside a dashed circle of "
        "radius one half. Right: three scores as bars; the smooth maximum lies between the maximum and the maximum plus "
        "T log 3."
    )
    logits = Numbers([math.log(2), math.log(2), -math.log(2)], -3, 3)
    before = Numbers([math.log(2), 0.0, -math.log(2)], -3, 3)
    temperature = Interval(1.0, 0.1, 3)

    def compute(self) -> dict:
        """Softmax of the scores / T and T · LSE(scores / T), now and before; the first order of what the nudge does to them.

        Also the two non-zero eigenpairs of the Jacobian diag(s) - s sᵀ at the present softmax s.
        """
        scores, before = (torch.tensor(value, dtype=torch.float64) for value in (self.logits, self.before))
        now, start = (torch.softmax(value / self.temperature, -1) for value in (scores, before))
        values, vectors = torch.linalg.eigh(softmax_jacobian(now))
        # The null vector is the constant one; the two others are those most nearly orthogonal to it.
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

    def draw_still(self, figure: Figure) -> None:
        """The simplex on the left, the bars on the right."""
        numbers = self.compute()
        basis = torch.tensor([[-1, 1, 0], [-1, -1, 2]], dtype=torch.float64)
        basis = basis / basis.norm(dim=1, keepdim=True)
        left, right = figure.subplots(1, 2)
        corners = (basis @ torch.eye(3, dtype=torch.float64)).T
        left.fill(*corners.T, fill=False, lw=1.2)
        for corner, (colour, marker) in zip(corners, CLASSES, strict=True):
            left.plot(*(1.14 * corner), marker, mfc="none", mec=colour, mew=2, ms=9)
        at, start = (basis @ torch.tensor(numbers[name], dtype=torch.float64) for name in ("softmax", "start"))
        turn = torch.linspace(0, 2 * torch.pi, 100, dtype=torch.float64)
        axes = [
            value * (basis @ torch.tensor(vector, dtype=torch.float64))
            for value, vector in zip(numbers["eigenvalues"], numbers["eigenvectors"], strict=True)
        ]
        left.fill(*(at[:, None] + torch.stack(axes, 1) @ torch.stack([turn.cos(), turn.sin()])), color=GREY, alpha=0.25)
        for axis in axes:
            left.plot(*torch.stack([at - axis, at + axis]).T, color=GREY, lw=2)
        left.plot(at[0] + 0.5 * turn.cos(), at[1] + 0.5 * turn.sin(), ":", color="black", lw=1)
        step = basis @ torch.tensor(numbers["step"], dtype=torch.float64)
        look = {"arrowstyle": "-|>", "color": PURPLE, "lw": 3, "shrinkA": 0, "shrinkB": 0}
        left.annotate("", (start + step).tolist(), start.tolist(), arrowprops=look)
        left.plot(*start, "o", color=BLUE, ms=6, alpha=0.6)
        left.plot(*at, "o", color=BLUE, ms=9, mec="black")
        left.set_aspect("equal")
        left.axis("off")
        top, gap = max(self.logits), self.temperature * math.log(3)
        bars = zip(self.logits, self.before, numbers["softmax"], CLASSES, strict=True)
        for index, (score, before, weight, (colour, marker)) in enumerate(bars):
            right.bar(index, score, color=colour, alpha=0.25 + 0.75 * weight, width=0.6)
            right.bar(index, before, fill=False, edgecolor="black", ls=":", width=0.6)
            right.plot(index, score, marker, mfc="white", mec=colour, mew=2, ms=8)
        for value, style, width, label in (
            (top + gap, ":", 1.4, "max + T log 3"),
            (numbers["smooth_maximum"], "-", 2.6, "T·LSE(a/T)"),
            (top, "-", 1, "max"),
        ):
            right.axhline(value, linestyle=style, color="black", lw=width, label=label)
        right.set_xticks(range(3), ["○", "△", "□"], fontname="DejaVu Sans")
        right.set_xlabel("class")
        right.set_ylabel("score")
        right.legend(loc="lower left", fontsize=8)
