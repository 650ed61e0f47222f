"""Loss spikes taken apart once more, one a run, with the controls that the first dissection lacked.

    python experiments/spike_controls.py

Writes results/spike_controls.json. Said before it was run:

Runs       the 300 at the defaults, seeds 1000 to 1299; of each run with spikes that end, up to epoch 1000, one spike drawn
           at random: spikes of one run are not independent, and the first dissection took them up to epoch 500 only (53
           spikes of 26 runs, seeds 0 to 199, on which the questions below arose). Runs are trained again step by step, and
           the step before the spike's peak that raises the loss most is taken apart.
Counted    what is left of the step's rise, as a share of it: medians with intervals from drawing spikes again, and how many
           keep less than half (half is the earlier threshold) with Wilson's intervals. First the interventions of `dissect`,
           then those of `controls`: "short layer", the change of the feed-forward layer's output shortened by the length of
           ξ where that is below 1, the very factor by which "far sequence" shortens the change of direction; "gentle layer",
           the same change with the layer's slope brought down to 1 where it is larger; "all but" one group of weights, where
           that group stays; and "short as" a group, the whole step shortened to the length of that group's part of it.
Tests      four, two-sided, corrected by Holm's method, at 0.05: the rank correlation of the share left by "straight layer"
           with the rise (-0.41 before); Wilcoxon's signed ranks for "short layer" against "far sequence", and for the
           feed-forward layer's own step against "short as feed-forward"; and Mann and Whitney's test of how much assemblers
           are correlated (mean size of their cosines, at the first snapshot fifty epochs after success) in runs with a spike
           after that against runs without (probability 0.65 before).
"""

import math
import random

import numpy as np
import torch
from fresh import FIRST, SUCCESS, holm, report, resampled, share, usual
from loss_spikes import mean_loss, stacked
from scipy.stats import mannwhitneyu, spearmanr, wilcoxon
from torch import Tensor

from attnopt.clustering import Course, Models, Spike, State, Training, dissect, find_spikes, gelu_derivative
from attnopt.clustering.spikes import GROUPS, losses, stages

AT_A_TIME, WAIT = 12, 50
LEFT_OUT = ("loss", "rise")


def controls(before: Models, after: Models, marked: Tensor, truth: Tensor) -> dict[str, Tensor]:
    """How much a step would have raised the mean loss of M models under the controls, shape (M,) each.

    Args:
        before: M models, with biases.
        after: the same a step later.
        marked: the training sequences of each, as from `marks`, (M, n, pL).
        truth: ones at their labels, (M, n, p).
    """
    held, now = (stages(models, marked) for models in (before, after))
    start = losses(held["logits"], truth).mean(1)

    def rise(moved: Models) -> Tensor:
        return losses(stages(moved, marked)["logits"], truth).mean(1) - start

    def shortened(factor: Tensor) -> Tensor:
        first, then = layer(before, held["direction"]), layer(after, now["direction"])
        output = now["sequence"] + first + factor * (then - first)
        return losses(output @ after.weights["token"].mT, truth).mean(1) - start

    step = {name: value - before.weights[name] for name, value in after.weights.items()}
    length = lambda names: sum(step[name].flatten(1).square().sum(1) for name in names).sqrt()  # noqa: E731
    found = {
        "short layer": shortened(held["sequence"].norm(dim=-1, keepdim=True).clamp_max(1.0)),
        "gentle layer": shortened(1 / slope(before, held["direction"]).clamp_min(1.0)),
    }
    for group, names in GROUPS.items():
        found[f"all but {group}"] = rise(after.replace(**{name: before.weights[name] for name in names}))
        part = length(names) / length(step)
        shorter = {name: part.view(-1, *[1] * (move.ndim - 1)) * move for name, move in step.items()}
        found[f"short as {group}"] = rise(before.moved(shorter))
    return found


def layer(models: Models, direction: Tensor) -> Tensor:
    """What the feed-forward layer adds to ξ, shape (M, n, d)."""
    return models.output(torch.zeros_like(direction), models.activations(direction))


def slope(models: Models, direction: Tensor) -> Tensor:
    """The largest factor by which the feed-forward layer lengthens a small change of direction, (M, n, 1)."""
    active, weights = gelu_derivative(models.activations(direction)), models.weights
    jacobian = torch.einsum("mdh,mnh,mhe->mnde", weights["assemblers"], active, weights["receptors"])
    return torch.linalg.svdvals(jacobian)[..., :1]


def chosen_spikes(training: Training) -> list[Spike]:
    """One spike of each run that has some, at random."""
    spikes = [spike for spike in find_spikes(training.history["loss"]) if spike.end is not None]
    runs = sorted({spike.model for spike in spikes})
    return [random.Random(run).choice([spike for spike in spikes if spike.model == run]) for run in runs]


def states_before(seeds: list[int], spikes: list[Spike]) -> list[State]:
    """What training of these runs needs to go on from two epochs before their spikes."""
    at = torch.tensor([max(spike.start - 2, 0) for spike in spikes])
    filled = [*seeds, *seeds[-1:] * (len(seeds) % 2)]  # rows are rounded as in the ensemble if their number is even
    course, found = Course(filled), {}
    state = course.initial()
    for epoch in range(int(at.max()) + 1):
        for run in (at == epoch).nonzero().flatten().tolist():
            found[run] = State(*(part[run].clone() for part in state))
        for _ in course.epoch(state):
            pass
    return [found[run] for run in range(len(spikes))]


def taken_apart(seeds: list[int], states: list[State]) -> dict[str, Tensor]:
    """Of some spikes: the rise of the steepest step before the peak, what is left of it, the loss at the peak."""
    _, state = stacked(list(zip(seeds, states, strict=True)))
    course = Course(seeds)
    for _ in course.epoch(state):
        pass
    rows = [state.rows.clone()]
    for _ in course.epoch(state):  # the epoch at whose end the loss is high
        rows.append(state.rows.clone())
    loss = torch.stack([mean_loss(course, row) for row in rows])
    rises = torch.where(torch.arange(len(loss) - 1)[:, None] < loss.argmax(0), loss.diff(dim=0), -math.inf)
    top, many, rows = rises.argmax(0), torch.arange(len(seeds)), torch.stack(rows)
    pair = course.models(rows[top, many]), course.models(rows[top + 1, many])
    data = course.marks.double(), course.truth.double()
    end = {"end": loss[-1].double(), "peak": loss.amax(0).double()}
    return dissect(*pair, *data) | controls(*pair, *data) | end


def assemblers(training: Training, spikes: list[Spike]) -> tuple[np.ndarray, np.ndarray]:
    """Mean size of the assemblers' cosines fifty epochs after success, in runs with a later spike and in runs without."""
    right = training.history["accuracy_all"] > SUCCESS
    with_, without = [], []
    for run in right.any(0).nonzero().flatten().tolist():
        epoch = -(-(int(right[:, run].int().argmax()) + WAIT) // 10) * 10
        if epoch >= 950:
            continue
        unit = torch.nn.functional.normalize(training.snapshots[epoch].weights["assemblers"][run].double(), dim=0)
        cosines = (unit.mT @ unit).abs()
        mean = (cosines.sum() - cosines.trace()) / (cosines.numel() - len(cosines))
        later = any(spike.model == run and spike.start > epoch for spike in spikes)
        (with_ if later else without).append(mean.item())
    return np.array(with_), np.array(without)


def measure() -> dict:
    """What the module's description says."""
    training = usual()
    every = [spike for spike in find_spikes(training.history["loss"]) if spike.end is not None]
    spikes = chosen_spikes(training)
    seeds = [FIRST + spike.model for spike in spikes]
    states = states_before(seeds, spikes)
    parts = []
    for at in range(0, len(seeds), AT_A_TIME):
        parts.append(taken_apart(seeds[at : at + AT_A_TIME], states[at : at + AT_A_TIME]))
        print(f"taken apart {at + len(parts[-1]['rise'])} of {len(seeds)}", flush=True)
    table = {name: torch.cat([part[name] for part in parts]).numpy() for name in parts[0]}
    end, peak = table.pop("end"), table.pop("peak")
    recorded = np.array([training.history["loss"][spike.start, spike.model].item() for spike in spikes])
    rose = table["rise"] > 0
    left = {name: values / table["rise"] for name, values in table.items() if name not in LEFT_OUT}
    heavy, light = assemblers(training, every)
    rank = mannwhitneyu(heavy, light)
    chances = {
        "straight layer and rise": spearmanr(left["straight layer"], table["rise"]).pvalue,
        "short layer, far sequence": wilcoxon(left["short layer"], left["far sequence"]).pvalue,
        "feed-forward, short as feed-forward": wilcoxon(left["feed-forward"], left["short as feed-forward"]).pvalue,
        "assemblers": rank.pvalue,
    }
    corrected = holm(chances)
    drawn = lambda rng: float(  # noqa: E731
        mannwhitneyu(rng.choice(heavy, len(heavy)), rng.choice(light, len(light))).statistic / len(heavy) / len(light)
    )
    rng = np.random.default_rng(0)
    return {
        "spikes_in_all": len(every),
        "runs": seeds,
        "starts": [spike.start for spike in spikes],
        "rise": table["rise"],
        "peak": peak,
        "not_met": int((abs(end - recorded) > 0.01 * recorded + 1e-3).sum()),
        "not_rising": int((~rose).sum()),
        "left": left,
        "median": {name: resampled(values) for name, values in left.items()},
        "below_half": {name: share(int((values < 0.5).sum()), len(values)) for name, values in left.items()},
        "rank_correlation": float(spearmanr(left["straight layer"], table["rise"]).statistic),
        "assemblers": {
            "runs": [len(heavy), len(light)],
            "auc": [
                float(rank.statistic / len(heavy) / len(light)),
                *np.quantile([drawn(rng) for _ in range(2000)], (0.025, 0.975)).tolist(),
            ],
        },
        "tests": {name: {"p": float(chances[name]), "corrected": corrected[name]} for name in chances},
    }


if __name__ == "__main__":
    report("spike_controls", measure)
