"""Attention and its potential for one head, as the context changes from fixed classes to a cloud to tight clusters."""

import torch
import traitlets
from torch import Tensor

from attnbook.explorer import Explorer, Interval, Numbers
from attnbook.explorers.attention_field import CLASSES

REACH, SHARPEST = 2.4, 6.0
CLOUD = ((0.8, -0.4), (-0.4, 0.5))  # covariance of the loose cloud
PREFIX, SUFFIX = 5, 7  # tokens of the clustered context


class OnePictureExplorer(Explorer):
    """One softmax head over a mixture of Gaussians around three class vectors: attention is the gradient of one potential.

    Keys and values are the tokens, and the context is infinitely long: K(q) = 1/β log E exp(β⟨q, x⟩) over the mixture, and
    attention at q is ∇K(q), a mean of the cluster centers plus βΣq.

    Traits:
        context: at 0, each class is a point (Part I); at 1, there is one cloud around 0, with covariance `CLOUD` (Part II);
            at 2, clusters without width, β = 6 instead of 1, and shares by counts (Part III). Halfway, there are clouds
            around the classes.
        query: the query q, a pair.
        ones: number of ▲ among the five tokens of the prefix in the third context.
    """

    module = "one_picture"
    alt = (
        "Left: a plane with three clusters, a query, and an arrow from 0 to what attention returns, made of a part between "
        "the clusters and one within them. Right: contours of the potential in the plane of queries, and at the query the "
        "same arrow, across them."
    )
    context = Interval(0.0, 0, 2)
    query = Numbers([1.2, 1.2], -REACH, REACH)
    ones = traitlets.Int(2, min=0, max=PREFIX).tag(sync=True)

    def _mixture(self) -> tuple[Tensor, Tensor, Tensor, float]:
        """Shares of the clusters, their centers and covariance, and β."""
        loose = 1 - abs(self.context - 1)
        near, wide, sharp = max(0.0, 2 * loose - 1), min(1.0, 2 * loose), max(0.0, 2 * self.context - 3)
        theta, cloud = (torch.tensor(value, dtype=torch.float64) for value in (CLASSES, CLOUD))
        counts = torch.tensor([PREFIX - self.ones, self.ones, SUFFIX], dtype=torch.float64)
        shares = (1 - sharp) / 3 + sharp * counts / (PREFIX + SUFFIX)
        return shares, (1 - near) * theta, wide**2 * cloud, 1 + (SHARPEST - 1) * sharp

    def _potential(self, query: Tensor) -> Tensor:
        """K at queries, shape (..., 2)."""
        shares, centers, cloud, sharpness = self._mixture()
        between = (sharpness * query @ centers.mT + shares.log()).logsumexp(-1) / sharpness
        return between + sharpness * ((query @ cloud) * query).sum(-1) / 2

    def compute(self) -> dict:
        """The mixture, attention in its two parts with its weights on the clusters, and the potential."""
        shares, centers, cloud, sharpness = self._mixture()
        query = torch.tensor(self.query, dtype=torch.float64)
        weights = (sharpness * query @ centers.mT + shares.log()).softmax(-1)
        between, within = weights @ centers, sharpness * query @ cloud
        return {
            "shares": shares.tolist(),
            "centers": centers.tolist(),
            "covariance": [cloud[0, 0].item(), cloud[0, 1].item(), cloud[1, 1].item()],
            "sharpness": sharpness,
            "weights": weights.tolist(),
            "between": between.tolist(),
            "within": within.tolist(),
            "attention": (between + within).tolist(),
            "potential": self._potential(query).item(),
        }
