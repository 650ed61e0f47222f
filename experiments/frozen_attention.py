"""The plateau with attention held: does it last because attention is slow to learn?

    python experiments/frozen_attention.py

Writes results/frozen_attention.json. Gopalani and Hu (2025) hold the attention of small transformers at what it becomes, and
their plateaus shrink. Said before it was run:

Runs       100 an arm, seeds 1000 to 1099, the defaults, EPOCHS epochs; initial weights, data and the order of mini-batches
           are the same in all arms. Attention e^S(x,t) of every token x at every position t is held throughout, while
           embeddings, values and the feed-forward layer are trained: "uniform", S = 0; "initial", S as the model starts;
           "final", S as the free run of the same seed ends, whether it has succeeded or not; "prefix", uniform over the
           prefix and nothing behind it, what a model would need to know. "free" trains S as well.
Counted    runs that leave the plateau, the mean loss of an epoch's mini-batches below LEFT, and the epoch in which they do
           (those that never do count as later than all); runs that reach 0.9 of all sequences at the end.
Tests      the epoch of leaving, each arm against "free", Wilcoxon's signed ranks over the seeds; four, two-sided, corrected
           by Holm's method. If attention is the bottleneck, "final" and "prefix" leave earlier; "uniform" tells what the
           rest can do without any choice of positions.
Collapse   of the 200 runs of the main ensemble, from their snapshots: the length of the mean direction of ξ over all
           sequences (1 if all are parallel) at the start, at the last snapshot before the escape and fifty epochs after it,
           over runs that escape after epoch 30; and at the end of runs that never do. Medians with quartiles.
"""

import math

import numpy as np
import torch
from ensembles import EPOCHS as LAST
from ensembles import finished
from fresh import FIRST, SUCCESS, holm, report, share
from scipy.stats import wilcoxon
from torch import Tensor

from attnopt.clustering import PAPER, Course, Models, escape_level, initial_models
from attnopt.clustering.model import marks

RUNS, EPOCHS, LEFT, EARLY, AFTER = 100, 600, escape_level(2), 30, 50
ARMS = ("free", "uniform", "initial", "final", "prefix")


def answers(models: Models, marked: Tensor, attention: Tensor | None) -> Tensor:
    """Logits (M, n, p) on sequences by their marks (M, n, pL), with the attention e^S (M, pL) held where it is given."""
    table = models.table().flatten(1, 2)
    weights = models.scores(table).exp() if attention is None else attention
    values = table @ models.weights["value"].mT
    sums = marked @ torch.cat([weights.unsqueeze(-1) * values, weights.unsqueeze(-1)], -1)
    return models.classify(sums[..., :-1] / sums[..., -1:])


def held(arm: str, start: Models, end: Models | None) -> Tensor | None:
    """The attention e^S (M, pL) of an arm."""
    if arm == "free":
        return None
    if arm in ("initial", "final"):
        models = start if arm == "initial" else end
        return models.scores(models.table().flatten(1, 2)).exp()
    first = torch.arange(start.length) < (PAPER.task.k if arm == "prefix" else start.length)
    return first.float().repeat(start.vocabulary).expand(len(start), -1)


def run(attention: Tensor | None, seeds: range, epochs: int = EPOCHS) -> tuple[Models, Tensor]:
    """Models trained with that attention, and the mean loss of every epoch's mini-batches, (epochs, M).

    A sequence's marks times e^S, with a query that stays 0, are that attention.
    """
    course = Course(seeds)
    state = course.initial()
    query = course.layout.views(state.rows)["query"]
    if attention is not None:
        course.marks = course.marks * attention.unsqueeze(1)
        query.zero_()
    losses = []
    for _ in range(epochs):
        batches = []
        for batch in course.epoch(state):
            batches.append(batch.clone())
            if attention is not None:
                query.zero_()
        losses.append(torch.stack(batches).mean(0))
    return course.models(state.rows).map(Tensor.float), torch.stack(losses)


def arms() -> dict:
    """The arms side by side."""
    seeds = range(FIRST, FIRST + RUNS)
    start, end, left, found = initial_models(seeds), None, {}, {}
    everything, targets = PAPER.task.all()
    marked = marks(everything.expand(RUNS, -1, -1), PAPER.task.p, torch.float32)
    for arm in ARMS:
        attention = held(arm, start, end)
        models, losses = run(attention, seeds)
        end = models if arm == "free" else end
        with torch.no_grad():
            right = (answers(models, marked, attention).argmax(-1) == targets).float().mean(1)
        below = losses < LEFT
        left[arm] = torch.where(below.any(0), below.double().argmax(0) + 1, math.inf).numpy()
        out = int(np.isfinite(left[arm]).sum())
        found[arm] = {
            "left": share(out, RUNS),
            "solved": share(int((right > SUCCESS).sum()), RUNS),
            "epochs": np.quantile(np.minimum(left[arm], EPOCHS + 1), (0.25, 0.5, 0.75)).tolist(),
        }
        print(arm, found[arm], flush=True)
    chances = {}
    for arm in ARMS[1:]:
        earlier = np.minimum(left[arm], EPOCHS + 1) - np.minimum(left["free"], EPOCHS + 1)
        chances[arm] = float(wilcoxon(earlier).pvalue)
        found[arm]["earlier"] = [int((earlier < 0).sum()), int((earlier > 0).sum())]
    for arm, value in holm(chances).items():
        found[arm]["p"] = value
    return found


def parallel(models: Models) -> Tensor:
    """Length of the mean direction of ξ over all sequences, (M,)."""
    xi = models.sequences(PAPER.task.all()[0])
    return (xi / xi.norm(dim=-1, keepdim=True).clamp_min(1e-12)).mean(1).norm(dim=-1)


def collapse() -> dict:
    """How parallel the sequence embeddings are, before and after the escape."""
    training = finished("main")
    below = training.history["loss"] < LEFT
    escape = torch.where(below.any(0), below.double().argmax(0), -1).tolist()
    lengths = {epoch: parallel(models.double()) for epoch, models in training.snapshots.items()}
    late = [run for run, epoch in enumerate(escape) if EARLY < epoch < LAST - AFTER]
    stuck = [run for run, epoch in enumerate(escape) if epoch < 0]
    moments = {
        "start": [lengths[0][run] for run in late],
        "plateau": [lengths[escape[run] // 10 * 10 - 10][run] for run in late],
        "after": [lengths[escape[run] // 10 * 10 + AFTER][run] for run in late],
        "stuck": [lengths[LAST][run] for run in stuck],
    }
    return {name: [len(some), *np.quantile(some, (0.5, 0.25, 0.75)).tolist()] for name, some in moments.items()}


def measure() -> dict:
    """What the module's description says."""
    return {"runs": RUNS, "epochs": EPOCHS, "collapse": collapse(), "arms": arms()}


if __name__ == "__main__":
    report("frozen_attention", measure)
