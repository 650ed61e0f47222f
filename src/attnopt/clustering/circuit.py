"""A clustering head built by hand, in two or three dimensions, for any p and k."""

import itertools
import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import gelu, normalize

from attnopt.checks import check_cost, check_count, check_number, check_word
from attnopt.clustering.model import Models
from attnopt.clustering.task import Task, check_sums

WIDEST = math.pi / 3  # the clusters' directions spread between minus and plus this angle
FARTHEST = 1e8  # no position needs to be farther out: there, the scores of unit tokens agree up to rounding


def cluster_counts(p: int, k: int) -> Tensor:
    """Number of occurrences of each token in a prefix, for every multiset of k tokens, shape (C(k + p - 1, k), p).

    Raises:
        ValueError: if a call would take longer than 300 s or 4 GiB.
    """
    p, k = check_count("p", p, 2), check_count("k", k)
    check_cost("p and k", f"{p} and {k}", gib=24 * (p + 8) * math.comb(k + p - 1, k) / 2**30)
    bars = torch.tensor(list(itertools.combinations(range(k + p - 1), p - 1)))  # stars and bars: where one token's stars end
    return torch.nn.functional.pad(bars, (0, 1), value=k + p - 1).diff(prepend=torch.full((len(bars), 1), -1)) - 1


def ideal_circuit(
    task: Task,
    sharpness: float,
    scale: float = 10.0,
    *,
    clusters: Literal["counts", "sums"] = "counts",
    dim: Literal[2, 3] = 2,
) -> Models:
    """A model that attends equally to the first k tokens, averages their heights, and maps each mean to its class.

    The position embeddings are two opposite points, one for the first k positions and one for the rest; the query points to
    the first. A token's height is one coordinate of its embedding. With "counts", the heights are 0, 1, k + 1, (k + 1)², …
    up to shift and scale, so no two multisets of k tokens have the same mean; with "sums", they are 0, 1, 2, …, so
    multisets with the same sum have the same mean. The value matrix spreads the means over an arc of 120 degrees. One neuron
    for each pair of neighboring clusters, and one that is always on, map each mean to its class embedding times ``scale``.

    In three dimensions, the first k embeddings lie on a circle around the query and get exactly the same attention. In the
    plane they nearly do, because the position embeddings have length 2 exp(sharpness).

    Args:
        task: the task to solve.
        sharpness: length of the query, positive; 10 is plenty for short sequences. A token after the first k gets about
            exp(-√2 sharpness) times the attention of one of these, in three dimensions exactly exp(-√(2/3) sharpness) times.
        scale: length of the output, positive.
        clusters: what the clusters represent, C(k + p - 1, k) "counts" or k (p - 1) + 1 "sums".
        dim: dimension of the embeddings, d, 2 or 3.

    Returns:
        An ensemble of one model in float64, with the paper's norm "unit" and as many neurons as there are clusters. The call
        solves a linear system of that size; 5000 clusters take 6 seconds, 12,000 a minute and a half.

    Raises:
        ValueError: if the task's labels are not sums, or a call would take longer than 300 s or 4 GiB.

    Source: the chapter "The ideal circuit"; Odonnat, Bouaziz, Cabannes (2025), section 3.1 and Figure 1, for the idea.
    """
    check_sums(task)
    p, length, k = task.p, task.length, task.k
    check_number("sharpness", sharpness)
    check_number("scale", scale)
    check_word("clusters", clusters, ("counts", "sums"))
    size = math.comb(k + p - 1, k) if clusters == "counts" else k * (p - 1) + 1
    check_cost("task", f"{task} with {size} clusters", 4.7e-11 * float(size) ** 3, 24 * size**2 / 2**30)
    if check_count("dim", dim, 2) > 3:
        raise ValueError(f"dim must be 2 or 3, got {dim!r}")
    exact = {"dtype": torch.float64}
    levels = torch.arange(p, **exact)
    if clusters == "counts":
        levels = torch.tensor([0.0] + [float((k + 1) ** v) for v in range(p - 1)], **exact)
    heights = 2 * levels / levels[-1] - 1
    bulge = (1 - heights**2).clamp(min=0).sqrt()
    # coordinates: along the query, along the heights, and in three dimensions the one that the value matrix drops
    token = torch.stack([bulge, heights] if dim == 2 else [torch.zeros(p, **exact), heights, bulge], -1)
    along = torch.eye(dim, **exact)[0]
    far = along * (min(2 * math.exp(min(sharpness, 100)), FARTHEST) if dim == 2 else 1.0)
    position = torch.where(torch.arange(length)[:, None] < k, far, -far)
    query = sharpness * along
    seen = normalize(token + far, dim=-1)
    value = torch.zeros(dim, dim, **exact)
    value[0, 0], value[1, 1] = 1.0, math.tan(WIDEST) / (seen[:, 1] / seen[:, 0]).abs().max()

    counts = cluster_counts(p, k).to(torch.float64)
    scores = seen @ query / dim**0.5
    weights = counts * (scores - scores.max()).exp()
    means = (weights / weights.sum(1, keepdim=True)) @ seen @ value.T
    sums = counts @ torch.arange(p, **exact)
    if clusters == "sums":  # one mean for all counts with the same sum
        same = (sums == torch.arange(k * (p - 1) + 1)[:, None]).to(torch.float64)
        means, sums = same @ means / same.sum(1, keepdim=True), torch.arange(k * (p - 1) + 1)
    angles, order = torch.atan2(means[:, 1], means[:, 0]).sort()
    between = (angles[1:] + angles[:-1]) / 2
    directions = torch.stack([angles.cos(), angles.sin()], -1)
    receptors = torch.cat([torch.tensor([[1.0, 0.0]], **exact), torch.stack([-between.sin(), between.cos()], -1)])
    receptors = 8 / (angles[1:] - angles[:-1]).min() * receptors
    wanted = scale * normalize(token, dim=-1)[sums[order].long() % p] - means[order]
    weights = {
        "token": token,
        "position": position,
        "query": query,
        "value": value,
        "receptors": torch.nn.functional.pad(receptors, (0, dim - 2)),
        "assemblers": torch.linalg.solve(gelu(directions @ receptors.T), wanted).T,
    }
    return Models({name: weight.unsqueeze(0).contiguous() for name, weight in weights.items()}, "unit")
