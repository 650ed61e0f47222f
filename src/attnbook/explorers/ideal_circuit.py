"""The ideal clustering head with its query rotated, its positions moved and split, and noise added to its embeddings."""

import torch

from attnbook.explorer import Explorer, Interval, Numbers
from attnopt.clustering import Models, Task, invariance, spurious_attention

REACH, CELLS = 10.0, 80  # half the width of the plane of sequence embeddings, and its cells per side
TIE = 1e-9  # closer logits count as equal, and the answer as half right
SUFFIXES = [37 * number % 128 for number in range(16)]  # the suffixes that are drawn with each prefix
NOISE = [  # standard normal numbers, from a generator seeded with 0
    *([-2.3, -0.4], [-1.1, 1.0], [-0.9, -1.3], [-0.6, -0.9], [-1.3, 1.5], [0.3, 2.0], [-1.5, -0.7]),
    *([0.5, -1.0], [-0.1, 0.6], [0.0, -1.2], [-0.7, 0.1], [-1.7, 1.0], [0.7, 0.1], [-1.1, 1.9]),
]


class IdealCircuitExplorer(Explorer):
    """The circuit of Figure 1 (Odonnat et al., 2025), built by hand for p = 2, k = 5, L = 12, d = 2, and changes to it.

    Traits:
        query: the query q, a pair; the embeddings of the first five positions lie along (1, 0).
        rest: the embedding of the positions in the suffix, a pair.
        split: how far apart the embeddings of positions of the same kind are.
        noise: size of a fixed random displacement of all token and position embeddings.
    """

    module = "ideal_circuit"
    alt = (
        "Left: normalized embeddings on a circle, dots for the first five positions and squares for the rest, with the "
        "query as an arrow toward the dots. Right: the sequence embeddings over the regions of the two classes, six tight "
        "clusters on a line, numbered 0 to 5 and of alternating class, each in a region of its own."
    )
    query = Numbers([8.0, 0.0], -16, 16)
    rest = Numbers([-1.0, 0.0], -2.5, 2.5)
    split = Interval(0.0, 0, 1)
    noise = Interval(0.0, 0, 1)

    def model(self) -> Models:
        """The circuit with the present changes."""
        exact = {"dtype": torch.float64}
        away = torch.tensor(NOISE, **exact) * self.noise
        spread = [(t - 2) / 2 for t in range(5)] + [(t - 3) / 3 for t in range(7)]
        places = [[1.0, 0.0]] * 5 + [self.rest] * 7
        position = torch.tensor([[x, y + self.split * by] for (x, y), by in zip(places, spread, strict=True)], **exact)
        weights = {
            "token": torch.tensor([[0.0, -1.0], [0.0, 1.0]], **exact) + away[:2],
            "position": position + away[2:],
            "query": torch.tensor(self.query, **exact),
            "value": 10 * torch.eye(2, **exact),
            "receptors": torch.tensor([[-8.0, 20.0], [-16.0, 20.0], [-8.0, -20.0], [-16.0, -20.0]], **exact),
            "assemblers": torch.tensor([[0.0] * 4, [-2.0, 4.5, 2.0, -4.5]], **exact),
        }
        return Models({name: weight.unsqueeze(0) for name, weight in weights.items()}, "unit")

    def compute(self) -> dict:
        """Embeddings, accuracy over all sequences, invariances, leakage, clusters, and a map of the classes."""
        model, task = self.model(), Task()
        tokens, targets = task.all()
        stages = model.stages(tokens)
        logits = stages["logits"]
        xi = stages["sequence"][0]
        lead = (2 * targets - 1) * (logits[0, :, 1] - logits[0, :, 0])
        counts = tokens[:, :5].sum(1)
        centers = torch.stack([xi[counts == ones].mean(0) for ones in range(6)])
        between = torch.pdist(centers)
        shares = invariance(model, task)
        least, most = spurious_attention(model, task)
        cells = (torch.arange(CELLS, dtype=torch.float64) + 0.5) * 2 * REACH / CELLS - REACH
        plane = torch.stack(torch.meshgrid(cells, cells, indexing="xy"), -1).flatten(0, 1)  # row by row
        answers = model.classify(plane[None])[0]
        return {
            "embeddings": model.table()[0].tolist(),
            "accuracy": torch.where(lead.abs() < TIE, 0.5, (lead > 0).double()).mean().item(),
            "suffix": shares["suffix"].item(),
            "permutation": shares["permutation"].item(),
            "least": least.item(),
            "most": most.item(),
            "clusters": xi.unflatten(0, (32, 128))[:, SUFFIXES].tolist(),
            "centers": centers.tolist(),
            "gap": between.min().item(),
            "radius": (xi - centers[counts]).norm(dim=1).max().item(),
            "map": (answers[:, 1] - answers[:, 0]).tolist(),
        }
