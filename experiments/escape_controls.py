"""What happens about the escape from the plateau: a stricter vote, a freezing test of all runs, more Hessians.

    python experiments/escape_controls.py

Writes results/escape_controls.json. All of it is about the 300 runs at the defaults, seeds 1000 to 1299; what it puts to
the test was found on the seeds 0 to 199. A run escapes in the first epoch with a training loss below 0.6 and solves the task
when more than 0.9 of all sequences are right, as before. Said before it was run:

vote       Do the sequence embeddings separate the classes at the escape? Each of all sequences gets the majority's label of
           its 15 nearest others; once among all others, as before, and once among those with another prefix: then sequences
           that differ in the suffix alone, which a quiet suffix puts on top of each other, have no vote. On all runs that
           escape, at the last snapshot (every tenth epoch) up to the escape and at the first from twenty epochs after it; on
           the same models untrained, and untrained with the attention to the suffix multiplied by 0.03, the control. Test:
           Wilcoxon's, runs paired with their own control, two-sided, on the second vote at the escape; one comparison. "They
           separate the classes" is upheld if besides that vote's median is 0.9 or more, a threshold chosen after seeing 0.98
           in the first vote of the old runs. (An ideal head gets 30/32 in the second vote: the prefixes of
           zeros and of ones alone have no like.)
freezing   From the last snapshot up to the escape each run that escapes by epoch 960, quick and slow, goes on for 150 epochs
           with a fresh Adam, everything trained, the feed-forward layer alone, or the rest alone. Counted: runs that solve
           the task at one of the evaluations, every tenth epoch; runs that have done so at the snapshot already are left out
           and counted. Quick: those that in the original training solve it within twenty epochs of the escape. Tests: the
           exact sign test on discordant runs for each two of the three arms, among all and among the quick: six, corrected
           by Holm's method, at 0.05.
hessians   Of the training loss and of the loss over all sequences: for the first 40 runs that escape between epochs 100 and
           950, at a snapshot at least 30 epochs before and after the escape, and for the first 40 that do not escape and
           whose tokens are more than 0.1 apart, at the end. Counted with Wilson's intervals: points with an eigenvalue below
           -0.001 (the earlier threshold). No test.
"""

import numpy as np
import torch
from fresh import FIRST, holm, report, resampled, share, usual
from scipy.spatial import cKDTree
from scipy.stats import binomtest, wilcoxon
from torch import Tensor
from two_phase_learning import ARMS, LEFT, SOLVED, TASK, first, pick

from attnopt.clustering import Models, Settings, Training, Watch, train, training_data
from attnopt.clustering.model import marks
from attnopt.clustering.sharpness import gradients
from attnopt.clustering.training.backward import Layout

NEIGHBOURS, QUIET, AFTER = 15, 0.03, 20
EPOCHS, LAST, QUICK = 150, 960, 20
AHEAD, MOST, APART, BELOW, STEP = 30, 40, 0.1, -1e-3, 1e-5
TOKENS, TARGETS = TASK.all()


def vote(points: np.ndarray, targets: np.ndarray, groups: np.ndarray | None = None) -> float:
    """How often the majority of the nearest others, of other groups if there are groups, has a point's label."""
    noise = np.random.default_rng(0).standard_normal(points.shape) * 1e-6  # equal points have no order
    points = points / (points.std(0).max() or 1.0) + noise
    if groups is None:
        near = targets[cKDTree(points).query(points, NEIGHBOURS + 1)[1][:, 1:]]
        return float(((near.mean(1) > 0.5) == targets).mean())
    right = 0
    for group in np.unique(groups):
        inside, outside = (groups == group).nonzero()[0], (groups != group).nonzero()[0]
        found = outside[cKDTree(points[outside]).query(points[inside], NEIGHBOURS)[1]]
        right += ((targets[found].mean(1) > 0.5) == targets[inside]).sum()
    return float(right / len(points))


def quiet(models: Models, tokens: Tensor, k: int, factor: float) -> Tensor:
    """Sequence embeddings with the attention to the suffix multiplied by a factor."""
    weights = models.stages(tokens)["attention"].clone()
    weights[..., k:] *= factor
    weights = weights / weights.sum(-1, keepdim=True)
    return models.stages(tokens, patch={"attention": weights})["sequence"]


def votes(models: Models, factor: float = 1.0) -> list[list[float]]:
    """Both votes of each model, among all others and among those with another prefix."""
    targets, prefixes, found = TARGETS.numpy(), np.arange(len(TOKENS)) // 2 ** (TASK.length - TASK.k), []
    for model in models:
        points = quiet(model.double(), TOKENS, TASK.k, factor)[0].numpy()
        found.append([vote(points, targets), vote(points, targets, prefixes)])
    return found


def at(training: Training, runs: list[int], epochs: list[int]) -> Models:
    """Runs, each at a snapshot of its own."""
    return Models.join([pick(training, epoch, [run]) for run, epoch in zip(runs, epochs, strict=True)])


def vote_part(training: Training, escape: list[int | None]) -> dict:
    """What `vote` of the module's description holds."""
    last = max(training.snapshots)
    runs = [run for run, epoch in enumerate(escape) if epoch is not None and epoch + AFTER + 10 <= last]
    before = [escape[run] // 10 * 10 for run in runs]
    after = [-(-(escape[run] + AFTER) // 10) * 10 for run in runs]
    start = pick(training, 0, runs)
    found = {
        "escape": votes(at(training, runs, before)),
        "after": votes(at(training, runs, after)),
        "untrained": votes(start),
        "quiet": votes(start, QUIET),
    }
    tables = {name: np.array(values) for name, values in found.items()}
    return {
        "runs": len(runs),
        "among_all": {name: resampled(table[:, 0]) for name, table in tables.items()},
        "other_prefixes": {name: resampled(table[:, 1]) for name, table in tables.items()},
        "upheld": share(int((tables["escape"][:, 1] >= 0.9).sum()), len(runs)),
        "p": float(wilcoxon(tables["escape"][:, 1], tables["quiet"][:, 1]).pvalue),
        "accuracy": resampled(
            np.array([training.history["accuracy_all"][epoch, run].item() for run, epoch in zip(runs, before, strict=True)])
        ),
    }


def freezing_part(training: Training, escape: list[int | None], solved: list[int | None]) -> dict:
    """What `freezing` of the module's description holds."""
    accuracy = training.history["accuracy_all"]
    runs = [run for run, epoch in enumerate(escape) if epoch is not None and epoch <= LAST]
    ready = [run for run in runs if accuracy[escape[run] // 10 * 10, run] > SOLVED]
    runs = [run for run in runs if run not in ready]
    start = at(training, runs, [escape[run] // 10 * 10 for run in runs]).map(Tensor.float)
    quick = np.array([solved[run] is not None and solved[run] <= escape[run] + QUICK for run in runs])
    reached = {}
    for arm, (rate, discount) in ARMS.items():
        own = Settings(learning_rate=rate, mlp_discount=discount, epochs=EPOCHS)
        done = train([FIRST + run for run in runs], own, Watch(every=10), start=start, compiled=False)
        reached[arm] = (done.history["accuracy_all"].amax(0) > SOLVED).numpy()
    found: dict = {"ready": len(ready)}
    chances = {}
    for kind, among in (("all", np.ones(len(runs), bool)), ("quick", quick), ("slow", ~quick)):
        found[kind] = {arm: share(int(marks[among].sum()), int(among.sum())) for arm, marks in reached.items()}
        if kind == "slow":
            continue
        for one, other in (("all", "feed-forward"), ("all", "the rest"), ("the rest", "feed-forward")):
            more, less = ((reached[a] & ~reached[b])[among].sum() for a, b in ((one, other), (other, one)))
            chances[f"{kind}: {one}, {other}"] = float(binomtest(int(more), max(int(more + less), 1)).pvalue)
    corrected = holm(chances)
    return found | {"tests": {name: {"p": chances[name], "corrected": corrected[name]} for name in chances}}


def hessian(model: Models, tokens: Tensor, targets: Tensor) -> Tensor:
    """The Hessian of one model's mean loss on sequences (n, L), by central differences of the gradient in float64."""
    layout = Layout.of(model.weights)
    row = layout.rows(model.double().weights)
    size = layout.spans()["assembler_bias"].stop
    data = marks(tokens, 2, row.dtype), torch.nn.functional.one_hot(targets, 2).to(row.dtype)
    moves = STEP * torch.eye(size, row.shape[1], dtype=row.dtype)
    many = [part.expand(size, *part.shape) for part in data]
    up, down = (gradients(layout, row + sign * moves, *many, model.norm)[:, :size] for sign in (1, -1))
    found = (up - down) / (2 * STEP)
    return (found + found.mT) / 2


def hessian_part(training: Training, escape: list[int | None]) -> dict:
    """What `hessians` of the module's description holds."""
    tokens, targets = training_data(range(FIRST, FIRST + len(escape)), TASK)
    token = training.models.weights["token"]
    apart = (token[:, 1] - token[:, 0]).norm(dim=1)
    left = [run for run, epoch in enumerate(escape) if epoch is not None and 100 < epoch <= 950][:MOST]
    stuck = [run for run, epoch in enumerate(escape) if epoch is None and apart[run] > APART][:MOST]
    points = {
        "plateau": [(run, (escape[run] - AHEAD) // 10 * 10) for run in left],
        "after": [(run, -(-(escape[run] + AHEAD) // 10) * 10) for run in left],
        "stuck": [(run, max(training.snapshots)) for run in stuck],
    }
    result = {}
    for kind, chosen in points.items():
        values = {"training": [], "all": []}
        for run, epoch in chosen:
            model = pick(training, epoch, [run])
            for name, data in (("training", (tokens[run], targets[run])), ("all", (TOKENS, TARGETS))):
                values[name].append(torch.linalg.eigvalsh(hessian(model, *data)).numpy())
        print(f"hessians {kind}: {len(chosen)}", flush=True)
        result[kind] = {
            name: {
                "down": share(sum(one[0] < BELOW for one in some), len(some)),
                "directions": resampled(np.array([(one < BELOW).sum() for one in some])),
                "least": resampled(np.array([one[0] for one in some])),
                "greatest": resampled(np.array([one[-1] for one in some])),
            }
            for name, some in values.items()
        }
    return result


def measure() -> dict:
    """What the module's description says."""
    training = usual()
    epochs = training.history["epoch"]
    escape = first(training.history["loss"] < LEFT, epochs)
    solved = first(training.history["accuracy_all"] > SOLVED, epochs)
    return {
        "escaped": share(sum(one is not None for one in escape), len(escape)),
        "freezing": freezing_part(training, escape, solved),
        "vote": vote_part(training, escape),
        "hessians": hessian_part(training, escape),
    }


if __name__ == "__main__":
    report("escape_controls", measure)
