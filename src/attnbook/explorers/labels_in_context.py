"""Labeled points in the plane and a query: the predictions of layers if the query's label is masked or supplied."""

import functools
import math

import torch
import traitlets
from torch import Tensor

from attnbook.explorer import Explorer, Interval, Numbers
from attnbook.explorers.one_step import standard_normals
from attnopt.synthesis import label_layers

TOKENS, TOSSES, REACH = 9, 400, 3.0  # the last token is the query
SOME = 243  # points of the plane that are evaluated together
CLASSES = torch.tensor([[-0.5], [0.5]], dtype=torch.float64)


@functools.cache
def tosses() -> tuple[Tensor, Tensor]:
    """Points and coin-flip labels of 400 fixed prompts, shapes (400, 9, 2) and (400, 9)."""
    drawn = torch.stack([standard_normals(10 + toss) for toss in range(TOSSES)])
    return drawn[:, :TOKENS], (drawn[:, TOKENS : 2 * TOKENS, 0] > 0).long()


class LabelsInContextExplorer(Explorer):
    """The effect of layers Z ← Z - (h/n)𝒦M(σ - C)θ for two classes on nine tokens in the plane, the last one the query.

    A second picture shows how often the query's label is predicted in 400 prompts of random points with coin-flip labels.

    Traits:
        points: the nine tokens, each a pair.
        labels: 0 or 1 for each token.
        mask: whether the query's label is "hidden" or "put in".
        kernel: the kernel 𝒦, "linear" (inner products) or "gaussian" (a Gaussian kernel).
        width: the width of the Gaussian kernel.
        step: the step size h of every layer.
        layers: number of layers.
    """

    module = "labels_in_context"
    alt = (
        "Left: eight labeled points in the plane, blue circles and orange triangles, and a query in a ring; a line "
        "through 0 divides a blue from an orange half. Right: two bars, how often one layer is right about the query's "
        "label when labels are coin flips: two thirds if the label was supplied, one half if it was masked, each at its "
        "exact value."
    )
    points = Numbers(
        [
            [1.1, 0.9],
            [-0.6, 1.5],
            [-1.4, -0.4],
            [0.5, -1.2],
            [1.6, -0.3],
            [-0.3, -0.8],
            [0.4, 2.0],
            [-1.9, 0.8],
            [-0.9, -1.7],
        ],
        -REACH,
        REACH,
    )
    labels = traitlets.List(
        traitlets.Int(min=0, max=1), default_value=[1, 0, 0, 1, 1, 1, 0, 1, 1], minlen=TOKENS, maxlen=TOKENS
    ).tag(sync=True)
    mask = traitlets.Enum(["hidden", "put in"], default_value="put in").tag(sync=True)
    kernel = traitlets.Enum(["linear", "gaussian"], default_value="linear").tag(sync=True)
    width = Interval(0.8, 0.2, 3)
    step = Interval(1.0, 0.1, 2)
    layers = traitlets.Int(1, min=1, max=8).tag(sync=True)

    def _similarities(self, left: Tensor, right: Tensor) -> Tensor:
        """𝒦 between points."""
        if self.kernel == "linear":
            return left @ right.mT
        apart = left.square().sum(-1)[..., :, None] + right.square().sum(-1)[..., None, :] - 2 * left @ right.mT
        return torch.exp(-apart / (2 * self.width**2))

    def _odds(self, points: Tensor, labels: Tensor, queries: int) -> Tensor:
        """Log-odds of label 1 of all tokens after the layers."""
        named = torch.nn.functional.one_hot(labels, 2).double()
        steps = [self.step] * self.layers
        return label_layers(self._similarities(points, points), named, CLASSES, steps, queries)[-1, ..., 0]

    def _field(self, places: Tensor) -> Tensor:
        """Log-odds that an unlabeled token would have at points of the plane, shape (..., 2)."""
        points, labels = torch.tensor(self.points, dtype=torch.float64), torch.tensor(self.labels)
        shown = TOKENS - (self.mask == "hidden")
        flat = places.reshape(-1, 2)
        found = []
        for some in flat.split(SOME):  # queries do not see each other
            named = torch.cat([labels[:shown], labels.new_zeros(len(some))])
            found.append(self._odds(torch.cat([points[:shown], some]), named, len(some))[shown:])
        return torch.cat(found).reshape(places.shape[:-1])

    def compute(self) -> dict:
        """Log-odds of all tokens, the number of correct examples, and the accuracy on the queries of the 400 prompts."""
        points, labels = torch.tensor(self.points, dtype=torch.float64), torch.tensor(self.labels)
        hidden = int(self.mask == "hidden")
        odds = self._odds(points, labels, hidden)
        right = (odds > 0) == (labels == 1)
        shares = {}
        for name, queries in (("put in", 0), ("hidden", 1)):
            answers = self._odds(*tosses(), queries)[:, -1] > 0
            shares[name] = (answers == (tosses()[1][:, -1] == 1)).double().mean().item()
        return {
            "odds": odds.tolist(),
            "shown": TOKENS - hidden,
            "chance": odds[-1].sigmoid().item(),
            "own": right[: TOKENS - hidden].sum().item(),
            "right": bool(right[-1]),
            "shares": shares,
            "exact": (1 + 1 / math.sqrt(TOKENS)) / 2 if self.kernel == "linear" and self.layers == 1 else None,
        }
