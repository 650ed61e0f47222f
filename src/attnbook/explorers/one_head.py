"""A head attends to tokens in clusters: its output, the output for its classmates only, and Part I's gradient."""

import functools

import torch
import traitlets
from torch import Tensor

from attnbook.explorer import Explorer, Numbers
from attnbook.explorers.one_step import bent, uniforms
from attnopt.synthesis import mixture_error, mixture_limit, read_context

MOST, REACH = 2000, 2.5


@functools.lru_cache(maxsize=8)
def draws(number: int) -> tuple[Tensor, Tensor]:
    """For each token of a draw, a fixed number in (0, 1) and a fixed standard normal pair, shapes (2000,) and (2000, 2)."""
    numbers = uniforms(number, 4 * MOST).view(MOST, 4)
    return numbers[:, 0], bent(numbers[:, 2:])


class OneHeadExplorer(Explorer):
    """Attention of a query over all tokens, in up to three Gaussian clusters, and over the tokens of the first cluster only.

    The clusters are equally likely and have the covariance Σ = aaᵀ + bbᵀ, where b is a, rotated by a right angle and halved.
    The query belongs to the first cluster; its scores are ⟨x, q⟩, and the tokens are the values.

    Traits:
        means: three pairs, the class vectors θ.
        axis: the longer semi-axis a of the clusters, a pair.
        query: the query q, a pair.
        clusters: number of clusters.
        tokens: number of tokens in the context.
        number: index of the random draw.
    """

    module = "one_head"
    alt = (
        "Left: three clouds of dots around hollow class vectors, and a query, a filled circle. A green arrow leads from "
        "what attention over all tokens returns to what attention over the query's own cluster returns; a nearly parallel "
        "gray arrow of nearly the same length leads from the average of the class vectors to that of the query's class, and "
        "dotted lines join their ends. An ellipse surrounds the tail of the green arrow. Right: bars of the attention on "
        "each cluster, each near its limit."
    )
    means = Numbers([[1.2, -0.3], [0.0, 1.4], [-1.4, -1.0]], -REACH, REACH)
    axis = Numbers([0.6, 0.35], -1, 1)
    query = Numbers([0.5, 1.0], -REACH, REACH)
    clusters = traitlets.Int(3, min=1, max=3).tag(sync=True)
    tokens = traitlets.Int(200, min=10, max=MOST).tag(sync=True)
    number = traitlets.Int(0, min=0, max=99).tag(sync=True)

    def _mixture(self) -> dict[str, Tensor]:
        """Means, shares and covariance."""
        a, b = self.axis
        factor = torch.tensor([[a, -b / 2], [b, a / 2]], dtype=torch.float64)
        return {
            "means": torch.tensor(self.means[: self.clusters], dtype=torch.float64),
            "shares": torch.full((self.clusters,), 1 / self.clusters, dtype=torch.float64),
            "covariance": factor @ factor.mT,
        }

    def _context(self) -> tuple[Tensor, Tensor]:
        """Tokens and their clusters."""
        uniform, noise = (part[: self.tokens] for part in draws(self.number))
        a, b = self.axis
        factor = torch.tensor([[a, -b / 2], [b, a / 2]], dtype=torch.float64)
        classes = (self.clusters * uniform).long()
        return self._mixture()["means"][classes] + noise @ factor.mT, classes

    def compute(self) -> dict:
        """Attention's output over all tokens and the query's cluster, shares, limits, and bias and covariance of errors."""
        query, mixture = torch.tensor([self.query], dtype=torch.float64), self._mixture()
        tokens, classes = self._context()
        members = torch.nn.functional.one_hot(classes, self.clusters).double()
        found, limit, error = (
            read_context(query, tokens, members),
            mixture_limit(query, **mixture),
            mixture_error(query, **mixture),
        )
        everyone = (found.shares.unsqueeze(-2) @ found.classes)[0, 0]
        mates = found.classes[0, 0] if (classes == 0).any() else None
        weights = torch.softmax(query @ tokens.mT, -1)
        return {
            "everyone": everyone.tolist(),
            "mates": None if mates is None else mates.tolist(),
            "pull": None if mates is None else (everyone - mates).tolist(),
            "shares": found.shares[0].tolist(),
            "belief": limit.belief[0].tolist(),
            "between": limit.between[0].tolist(),
            "within": limit.within[0].tolist(),
            "limit": (limit.between[0] + limit.within[0]).tolist(),
            "gradient": (limit.between[0] - mixture["means"][0]).tolist(),
            "count": 1 / weights.square().sum().item(),
            "effective": self.tokens / error.spread.item(),
            "bias": (error.bias[0] / self.tokens).tolist(),
            "covariance": (error.covariance[0] / self.tokens).flatten().tolist(),
        }
