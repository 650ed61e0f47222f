"""A clustering head built by hand, in the plane, for any p and k."""

import math

import torch
from torch import Tensor
from torch.nn.functional import gelu

from attnopt.clustering.model import Params
from attnopt.clustering.task import check_task

WIDEST = math.pi / 3  # the clusters' directions spread between minus and plus this angle


def cluster_counts(p: int, k: int) -> Tensor:
    """How often each token stands in a prefix, for every multiset of k tokens, shape (C(k + p - 1, k), p)."""
    p, k, _ = check_task(p, k, 1)

    def compositions(total: int, parts: int) -> list[tuple[int, ...]]:
        if parts == 1:
            return [(total,)]
        return [(first, *rest) for first in range(total + 1) for rest in compositions(total - first, parts - 1)]

    return torch.tensor(compositions(k, p))


def ideal_circuit(p: int, length: int, k: int, sharpness: float, scale: float = 10.0) -> Params:
    """Weights in d = 2 that attend to the first k tokens alike, count them, and map each count to its class.

    Positions are two opposite points, one for the first k and one for the rest; the query points at the first. The tokens'
    heights on the circle are powers of k + 1, so that no two multisets of k tokens have the same mean; the value matrix
    spreads these means over an arc; one neuron between neighbouring clusters, and one always on, take each to ``scale``
    times the embedding of its class.

    Args:
        p: size of the vocabulary.
        length: L, tokens a sequence.
        k: how many of them count.
        sharpness: of the attention, positive: a spurious token gets about exp(-√2 sharpness) of the attention of another.
        scale: length of the output, positive.

    Returns:
        Parameters as from `init_model` for one model, float64, with as many neurons as there are clusters.

    Raises:
        TypeError: if p, length or k is not an integer.
        ValueError: if they are out of range, or ``sharpness`` or ``scale`` is not positive and finite.

    Source: the chapter "The ideal circuit"; Odonnat, Bouaziz, Cabannes (2025), section 3.1 and Figure 1, for the idea.
    """
    p, length, k = check_task(p, length, k)
    for name, value in (("sharpness", sharpness), ("scale", scale)):
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be positive and finite, got {value!r}")
    exact = {"dtype": torch.float64}
    powers = torch.tensor([float((k + 1) ** v) for v in range(p)], **exact)
    heights = 2 * (powers - 1) / (powers[-1] - 1) - 1
    token = torch.stack([(1 - heights**2).clamp(min=0).sqrt(), heights], -1)
    # far positions bring all embeddings Z(x, t ≤ k) close to the query, so that their scores hardly differ
    far = torch.tensor([2.0 * math.exp(sharpness), 0.0], **exact)
    position = torch.where(torch.arange(length)[:, None] < k, far, -far)
    query = torch.tensor([sharpness, 0.0], **exact)
    seen = torch.nn.functional.normalize(token + far, dim=-1)
    value = torch.diag(torch.tensor([1.0, math.tan(WIDEST) / (seen[:, 1] / seen[:, 0]).abs().max()], **exact))

    counts = cluster_counts(p, k).to(torch.float64)
    weights = counts * (seen @ query / math.sqrt(2)).exp()
    clusters = (weights / weights.sum(1, keepdim=True)) @ seen @ value.T
    angles, order = torch.atan2(clusters[:, 1], clusters[:, 0]).sort()
    between = (angles[1:] + angles[:-1]) / 2
    steepness = 8 / (angles[1:] - angles[:-1]).min() if len(angles) > 1 else 1.0
    receptors = steepness * torch.cat(
        [torch.tensor([[1.0, 0.0]], **exact), torch.stack([-between.sin(), between.cos()], -1)]
    )
    directions = torch.stack([angles.cos(), angles.sin()], -1)
    labels = (counts[order] @ torch.arange(p, **exact)).long() % p
    wanted = scale * torch.nn.functional.normalize(token, dim=-1)[labels] - clusters[order]
    assemblers = torch.linalg.solve(gelu(directions @ receptors.T), wanted).T
    params = {
        "token": token,
        "position": position,
        "query": query,
        "value": value,
        "receptors": receptors,
        "assemblers": assemblers,
    }
    return {name: value.unsqueeze(0).contiguous() for name, value in params.items()}
