"""The ideal clustering head under strain: its query turned, its positions moved and split, its embeddings blurred."""

import math

import torch
from matplotlib.figure import Figure

from attnbook.explorer import Explorer, Interval, Numbers
from attnbook.plotting import BLUE, GREY, ORANGE
from attnopt.clustering import Models, Task, invariance, spurious_attention

REACH, CELLS = 10.0, 80  # the plane of sequence embeddings, and its cells a side
SPACE, ARROW = 2.7, 6.0  # the plane of embeddings, and how much shorter the query is drawn
TIE = 1e-9  # logits no further apart are equal: right in half of the cases
SUFFIXES = [37 * number % 128 for number in range(16)]  # those drawn with each prefix
NOISE = [  # standard normal numbers, from a generator seeded with 0
    *([-2.3, -0.4], [-1.1, 1.0], [-0.9, -1.3], [-0.6, -0.9], [-1.3, 1.5], [0.3, 2.0], [-1.5, -0.7]),
    *([0.5, -1.0], [-0.1, 0.6], [0.0, -1.2], [-0.7, 0.1], [-1.7, 1.0], [0.7, 0.1], [-1.1, 1.9]),
]


class IdealCircuitExplorer(Explorer):
    """The circuit of Figure 1 for p = 2, k = 5, L = 12 in the plane, by default as built by hand, and what is left of it.

    Traits:
        query: q, a pair; the embeddings of the first five positions lie along (1, 0).
        rest: where the positions of the suffix stand, a pair.
        split: how far apart the positions of each kind stand.
        noise: size of a fixed random displacement of all token and position embeddings.
    """

    module = "ideal_circuit"
    alt = (
        "Left: normalized embeddings on a circle, dots for the first five positions and squares for the rest, with the "
        "query as an arrow towards the dots. Right: the sequence embeddings over the regions of the two classes, six tight "
        "clusters on a line, numbered 0 to 5 and of alternating class, each in a region of its own."
    )
    query = Numbers([8.0, 0.0], -16, 16)
    rest = Numbers([-1.0, 0.0], -2.5, 2.5)
    split = Interval(0.0, 0, 1)
    noise = Interval(0.0, 0, 1)

    def model(self) -> Models:
        """The circuit as strained."""
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
        centres = torch.stack([xi[counts == ones].mean(0) for ones in range(6)])
        between = torch.pdist(centres)
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
            "centres": centres.tolist(),
            "gap": between.min().item(),
            "radius": (xi - centres[counts]).norm(dim=1).max().item(),
            "map": (answers[:, 1] - answers[:, 0]).tolist(),
        }

    def draw_still(self, figure: Figure) -> None:
        """Embeddings and query on the left, clusters and classes on the right."""
        numbers = self.compute()
        left, right = figure.subplots(1, 2)
        around = torch.linspace(0, 2 * math.pi, 200)
        left.plot(around.cos(), around.sin(), color=GREY, lw=0.8)
        place = self.model().weights["position"][0]
        for colour, row in zip((BLUE, ORANGE), numbers["embeddings"], strict=True):
            for part, marker in ((row[:5], "o"), (row[5:], "s")):
                left.scatter(*zip(*part, strict=True), c=colour, marker=marker, s=40, zorder=3)
        for part, marker in ((place[:5], "o"), (place[5:], "s")):
            left.scatter(*part.T, facecolors="none", edgecolors="black", marker=marker, s=40)
        left.annotate("", [part / ARROW for part in self.query], (0, 0), arrowprops={"arrowstyle": "->", "lw": 1.8})
        left.set(xlim=(-SPACE, SPACE), ylim=(-SPACE, SPACE), aspect="equal", xlabel="positions P, sums Z, query q")
        regions = torch.tensor(numbers["map"]).view(CELLS, CELLS) > 0
        extent = (-REACH, REACH, -REACH, REACH)
        for region, colour in ((~regions, BLUE), (regions, ORANGE)):
            shade = torch.zeros(CELLS, CELLS, 4)
            shade[..., :3] = torch.tensor([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
            shade[..., 3] = 0.3 * region
            right.imshow(shade.numpy(), origin="lower", extent=extent)
        for number, points in enumerate(numbers["clusters"]):
            odd = number.bit_count() % 2
            right.scatter(*zip(*points, strict=True), c=(BLUE, ORANGE)[odd], marker="o^"[odd], s=12)
        for ones, (x, y) in enumerate(numbers["centres"]):
            right.text(x + 0.8, y, str(ones), va="center", fontsize=9)
        right.set(xlim=(-REACH, REACH), ylim=(-REACH, REACH), xlabel="sequence embeddings ξ; number of ones")
        left.grid(False)
        right.grid(False)
