"""The descent field of one of three tokens, steps along it, and the attention matrix with softmax over either axis."""

import itertools
import math

import numpy as np
import torch
import traitlets

from attnbook.explorer import Explorer, Interval, Numbers
from attnopt.regression import cross_attention, linear_gradient, pointwise_cross_entropy
from attnopt.softmax import softmax

REACH, STEPS, FAR = 3.0, 60, 50.0
BY_HAND = [[math.log(2), 0.0], [0.0, 0.0], [0.0, math.log(2)]]  # with these, attention consists of simple fractions
CLASSES = [[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]


class AttentionFieldExplorer(Explorer):
    """Where gradient descent moves three tokens with two features, and how the selected token attends to three classes.

    The labels are (1 - softness) I + softness / 3, which are normalized along both axes.

    Traits:
        tokens: the features Z before the first step, three pairs.
        weights: the class vectors θ, three pairs.
        steps: number of steps Z ← Z - gradient taken, all tokens at once.
        softness: softness of the labels, from 0 (one-hot) to 1 (uniform).
        axis: the softmax axis, "class" or "sequence".
        selected: index of the token whose field is drawn.
    """

    module = "attention_field"
    alt = (
        "Left: the plane of two features. Three hollow shapes are the class weights, corners of a dotted triangle; three "
        "filled ones the tokens. Small arrows show where descent sends token 3 from each point. A thick arrow leads from a "
        "dot inside the triangle, attention's average of the class weights, to the weight of class 3, the label's average; "
        "a parallel one leaves the token. Right: the three by three attention matrix, whose rows sum to one, and below it "
        "the cross-entropy before the first step, 3.604."
    )
    tokens = Numbers(BY_HAND, -REACH, REACH)
    weights = Numbers(CLASSES, -2, 2)
    steps = traitlets.Int(0, min=0, max=STEPS).tag(sync=True)
    softness = Interval(0.0, 0, 1)
    axis = traitlets.Enum(["class", "sequence"], default_value="class").tag(sync=True)
    selected = traitlets.Int(2, min=0, max=2).tag(sync=True)

    def _problem(self) -> tuple[torch.Tensor, torch.Tensor, str]:
        """Weights, labels and softmax axis."""
        labels = (1 - self.softness) * torch.eye(3, dtype=torch.float64) + self.softness / 3
        return torch.tensor(self.weights, dtype=torch.float64), labels, self.axis

    def _path(self) -> torch.Tensor:
        """The tokens after each number of steps, shape (steps + 1, 3, 2)."""
        path = [torch.tensor(self.tokens, dtype=torch.float64)]
        for _ in range(self.steps):
            path.append(path[-1] - linear_gradient(path[-1], *self._problem()))
        return torch.stack(path)

    def compute(self) -> dict:
        """The path and its losses, and at its end attention, its output, the labels' target, gradient, and a zero."""
        path, (weights, labels, axis) = self._path(), self._problem()
        now, losses = path[-1], pointwise_cross_entropy(path @ weights.mT, labels, axis)
        return {
            "path": path.tolist(),
            "losses": losses.tolist(),
            "attention": softmax(now @ weights.mT, axis).tolist(),
            "output": cross_attention(now, weights, axis).tolist(),
            "target": (labels @ weights).tolist(),
            "gradient": linear_gradient(now, weights, labels, axis).tolist(),
            "loss": losses[-1].item(),
            "zero": self._zero(now.numpy()),
        }

    def _zero(self, tokens: np.ndarray) -> list[float] | None:
        """A point where the chosen token's field vanishes while the other tokens stay fixed; None if none is found.

        With softmax over classes, the field vanishes somewhere if some p > 0 with sum 1 satisfies pθ = cθ, where c is the
        label (Theorem "Features of least cross-entropy" of the chapter). With softmax over tokens, each class compares the
        token with the other tokens: the gradient is Σ (p_c - C_c) θ_c with p_c = logistic(z·θ_c - b_c), so by the same
        proof some p must satisfy 0 < p_c < 1 for all c and pθ = Cθ. A soft label is such a p itself. For the one-hot label
        of class s, such a p exists if a combination with positive coefficients vanishes: of θ_c - θ_s for c ≠ s (over
        classes), or of θ_c for c ≠ s and -θ_s (over tokens).
        """
        weights, labels, axis = (value.numpy() if torch.is_tensor(value) else value for value in self._problem())
        others = [index for index in range(3) if index != self.selected]
        own, rest = weights[self.selected], weights[others]
        pulls = rest - own if axis == "class" else np.vstack([rest, -own])
        if self.softness == 0 and not _balanced(pulls.tolist()):
            return None
        offered = np.logaddexp(*(tokens[others] @ weights.T))  # log-sum-exp of the other tokens' scores for each class
        pairs = list(itertools.combinations(range(3), 2))
        spans = np.array([weights[a] - weights[b] for a, b in pairs]) if axis == "class" else weights
        areas = np.array([spans[a, 0] * spans[b, 1] - spans[a, 1] * spans[b, 0] for a, b in pairs])
        lengths = np.linalg.norm(spans, axis=1)
        flat = all(abs(area) <= 1e-9 * lengths[a] * lengths[b] for (a, b), area in zip(pairs, areas, strict=True))
        reach, z = lengths.max(), tokens[self.selected]
        for _ in range(100):  # damped Newton steps, each of which descends (Sun and Tran-Dinh, 2019)
            gradient, shares = _slope(z, weights, labels[self.selected], axis, offered, pairs)
            hessian = (spans.T * shares) @ spans
            if flat:  # the gradient lies along the line of the weights, and so does the zero
                curvature = gradient @ hessian @ gradient
                step = -gradient * (gradient @ gradient) / curvature if curvature > 0 else 0 * gradient
            else:  # the determinant is a sum of nonnegative terms
                determinant = sum(shares[a] * shares[b] * area**2 for (a, b), area in zip(pairs, areas, strict=True))
                turned = [[hessian[1, 1], -hessian[0, 1]], [-hessian[0, 1], hessian[0, 0]]]
                step = -np.array(turned) @ gradient / determinant if determinant > 0 else 0 * gradient
            long = reach * np.linalg.norm(step)
            z = z + step * (np.log1p(long) / long if long > 0 else 1)
        gradient, _ = _slope(z, weights, labels[self.selected], axis, offered, pairs)
        return z.tolist() if np.linalg.norm(gradient) < 1e-9 and np.linalg.norm(z) < FAR else None


def _balanced(vectors: list[list[float]]) -> bool:
    """Whether some combination of vectors in the plane with positive coefficients vanishes.

    By Stiemke's lemma, this holds if and only if no z satisfies v·z ≥ 0 for all vectors v and v·z > 0 for some. In the
    plane, it is enough to test each z that is parallel or perpendicular to one of the vectors.
    """
    for x, y in vectors:
        for z in ((x, y), (-x, -y), (-y, x), (y, -x)):
            sizes = [1e-12 * math.hypot(*v) * math.hypot(*z) for v in vectors]
            products = [v[0] * z[0] + v[1] * z[1] for v in vectors]
            signs = [0 if abs(product) <= size else product for product, size in zip(products, sizes, strict=True)]
            if min(signs) >= 0 and max(signs) > 0:
                return False
    return True


def _slope(z, weights, label, axis, offered, pairs) -> tuple[np.ndarray, np.ndarray]:
    """The gradient of one token's cross-entropy, and the weights of the spans in its Hessian."""
    scores = weights @ z
    if axis == "class":
        belief = np.exp(scores - scores.max())
        belief = belief / belief.sum()
        shares = np.array([belief[a] * belief[b] for a, b in pairs])
    else:
        ahead = scores - offered
        belief, other = (np.exp(-np.logaddexp(0, sign * ahead)) for sign in (-1, 1))
        shares = belief * other
    return (belief - label) @ weights, shares
