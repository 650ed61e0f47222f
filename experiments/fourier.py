"""Counts or Fourier features: what the stages of trained models are functions of, for two, three and five tokens.

    python experiments/fourier.py

Writes results/fourier.json. Said before it was run:

Runs       100 for each of SETTINGS (p, L, k), seeds 1000 to 1099, the defaults otherwise; dense tasks, k = L, beside sparse
           ones. Of the successes, more than 0.9 of all sequences right, all are taken apart.
Stages     over all sequences alike, for each model: ξ, the neurons before their nonlinearity, after it, and the logits,
           less their mean over labels, as points; and the direction φ of ξ, turned m = 1 … p times, as the points
           (cos mφ, sin mφ).
Told       which share of the variance of a stage is explained by a sum of functions of one token each ("additive", what an
           average of embeddings with fixed weights can be), by a function of the prefix's counts ("counts"), and by a
           function of the label, Σ x_t modulo p ("sum", the span of the characters exp(2πi wS/p), w ≠ 0, which are the
           Fourier features of modular addition): the median over successes, and the quartiles.
Expected   additive functions of two tokens or more are uncorrelated with the characters of the sum, so ξ has next to
           nothing of them however well the task is solved, and the logits nearly everything. For k = 2 the direction of a
           mean of two points of a circle is half the sum of their angles: turned twice it may be a function of the sum (the
           "pizza" of the literature). For k > 2 there is no such rule, and the sum should appear behind the neurons only.
Tokens     the additive part of ξ at each position of the prefix, as p points: the share of their variance on one line, and
           at one frequency, the best of each; for p = 5, where they are different things.
"""

import numpy as np
import torch
from fresh import FIRST, SUCCESS, report, share, trained
from torch import Tensor

from attnopt.clustering import Models, Settings, Task, Watch

RUNS, EPOCHS = 100, 1000
SETTINGS = ((2, 12, 5), (2, 5, 5), (2, 2, 2), (3, 12, 5), (3, 5, 5), (3, 2, 2), (5, 6, 2), (5, 3, 3), (5, 2, 2))
FINAL = Watch(every=EPOCHS)


def explained(points: Tensor, groups: Tensor) -> float:
    """Share of the variance of points (n, d) between groups, integers (n,)."""
    centered = points - points.mean(0)
    _, member, sizes = groups.unique(return_inverse=True, return_counts=True)
    sums = points.new_zeros(len(sizes), points.shape[1]).index_add(0, member, centered)
    total = centered.square().sum()
    return float((sums.square() / sizes.unsqueeze(1)).sum() / total) if total > 1e-12 else 0.0


def shares(points: Tensor, tokens: Tensor, task: Task) -> list[float]:
    """What explains points of all sequences: sums of functions of one token, the prefix's counts, the label."""
    prefix = tokens[:, : task.k]
    counts = sum((prefix == value).sum(1) * (task.k + 1) ** value for value in range(task.p))
    additive = sum(explained(points, tokens[:, t]) for t in range(task.length))
    return [additive, explained(points, counts), explained(points, task.labels(tokens))]


def stages(model: Models, tokens: Tensor, p: int) -> dict[str, Tensor]:
    """The points of each stage of one model."""
    held = {name: value[0] for name, value in model.stages(tokens).items()}
    angle = torch.atan2(held["sequence"][:, 1], held["sequence"][:, 0])
    turned = {f"turned {m}": torch.stack([(m * angle).cos(), (m * angle).sin()], 1) for m in range(1, p + 1)}
    logits = held["logits"] - held["logits"].mean(1, keepdim=True)
    neurons = {"before": held["activations"], "after": torch.nn.functional.gelu(held["activations"])}
    return {"ξ": held["sequence"], **turned, **neurons, "logits": logits}


def arrangement(points: Tensor, tokens: Tensor, task: Task) -> tuple[float, float]:
    """The additive part at the positions of the prefix: the share on the best line, and at the best frequency."""
    line, pure, total = 0.0, 0.0, 0.0
    centered = points - points.mean(0)
    for t in range(task.k):
        effects = torch.stack([centered[tokens[:, t] == value].mean(0) for value in range(task.p)])
        line += float(torch.linalg.svdvals(effects)[0] ** 2)
        power = torch.fft.fft(effects, dim=0).abs().square().sum(1) / task.p
        pure += max(float(power[w] + (power[-w] if 2 * w != task.p else 0)) for w in range(1, task.p // 2 + 1))
        total += float(effects.square().sum())
    return line / total, pure / total


def setting(p: int, length: int, k: int) -> dict:
    """What the module's description says, of one setting."""
    task = Task(p, length, k)
    training = trained(f"fourier_{p}_{length}_{k}", RUNS, Settings(task, epochs=EPOCHS), FINAL)
    won = torch.nonzero(training.history["accuracy_all"][-1] > SUCCESS).flatten().tolist()
    tokens, found, arranged = task.all()[0], {}, []
    for index in won:
        model = training.models[[index]].double()
        points = stages(model, tokens, p)
        for name, value in points.items():
            found.setdefault(name, []).append(shares(value, tokens, task))
        arranged.append(arrangement(points["ξ"], tokens, task))
    quartiles = {name: np.quantile(np.array(rows), (0.5, 0.25, 0.75), axis=0).T.tolist() for name, rows in found.items()}
    answer = {"p": p, "length": length, "k": k, "success": share(len(won), RUNS), "shares": quartiles}
    return answer | ({"tokens": np.quantile(np.array(arranged), (0.5, 0.25, 0.75), axis=0).T.tolist()} if won else {})


def measure() -> dict:
    """What the module's description says."""
    torch.set_default_dtype(torch.float64)
    return {"settings": [setting(*sizes) for sizes in SETTINGS], "first": FIRST}


if __name__ == "__main__":
    report("fourier", measure)
