"""When training leaves the plateau, what it learns first, and what its gradients and curvature say: from the ensembles.

    python experiments/two_phase_learning.py [SECTION ...]

Reads the finished ensembles of experiments/ensembles.py and writes results/two_phase_learning.json, section by section:
those named, or else those that are missing. An ensemble that is not finished is left out. All others read the events.

Sections:

    settings           CRITERIA and SHARES
    events.ENSEMBLE    of each run: "escape", the first epoch with a training loss below LEFT ("escape_early" and
                       "escape_late" with the other LEVELS), "crossing", the first with an accuracy on all sequences above
                       SOLVED, null where there is none; "final" accuracy on all, "final_training" on the training set;
                       "drops", number of drops of the training loss by each of CRITERIA (fall, window), "drop_starts" by the
                       first; "clustered", first epoch of accuracy-free clustering: from which the counts' share of the
                       variance of ξ (suffix + permutation - 1) stays above each of SHARES for ten evaluations;
                       "aligned", over the runs that escape after epoch BEFORE: for offsets from the escape, quartiles of
                       loss, accuracy, counts' share and, for every parameter, of the gradient (root mean square over an
                       epoch's steps) divided by its median over the run's plateau; "baseline", the same at random epochs;
                       "correlation", for each run that escapes, of log loss fallen in ten epochs with the log gradient
    walsh.ENSEMBLE     around the escape of each run: parity coefficient π, "free" = 2 E log cosh(m/2), which π must exceed
                       for a loss below log 2, the share of π² in E m², distance of the token embeddings; at the end of
                       each run that distance and the greatest ‖ψ‖; and "nearest", the accuracy of a vote of the NEIGHBOURS
                       nearest other sequence embeddings, beside "accuracy"
    curvature.ENSEMBLE Hessian of the training loss: at the snapshot at least AHEAD epochs before the escape ("plateau") and
                       after it ("after"), at the end of runs that do not escape ("stuck"): loss, norm of the gradient, least
                       and greatest eigenvalue, number below -1e-3, share of the gradient in the eigenspace below -1e-3,
                       curvature of the loss over all sequences along the least eigenvector, wait until the escape
    influences         of the main ensemble, over the runs that escape after epoch BEFORE: at each of MOMENTS around the
                       escape (the snapshot before it) quartiles of the five influences ‖δ_t‖ of the counted tokens, from the
                       least to the greatest ("sorted"), and in how many runs the least is below a quarter of the greatest
                       ("few"); and from the first moment to the last, quartiles of the factors by which each of the five,
                       their product and |π| grow, with the rank correlation of the last two
    parts              of the main ensemble: runs that reach SOLVED within EPOCHS more epochs from a snapshot soon after the
                       escape, when everything is trained, the feed-forward layer alone, or the rest alone; and how far
                       STARTED runs get within START_EPOCHS from the start when one of the two is trained
    noise              the runs of the main ensemble whose tokens coincide at the end, trained on from the snapshot before
                       that in which the tokens are closer than NEAR, but not before epoch 5, with mini-batches ("mini")
                       and with the full batch ("full"): distance of the tokens after as many steps, and least loss on the
                       way
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from ensembles import finished
from lab import Record
from scipy.spatial import cKDTree
from scipy.stats import spearmanr
from torch import Tensor
from tqdm import tqdm

from attnopt.clustering import (
    Models,
    Settings,
    Task,
    Training,
    Watch,
    curvature,
    escape_level,
    find_drops,
    influences,
    log_cosh_half,
    margins,
    parity_coefficient,
    train,
    training_data,
)

RECORD, TASK = Record("two_phase_learning", digits=4, engine="plain"), Task()
LEFT, LEVELS, SOLVED = escape_level(2), {"escape_early": 0.65, "escape_late": 0.5}, 0.9
CRITERIA, SHARES = [(0.1, 20), (0.05, 20), (0.2, 20), (0.1, 10), (0.1, 40)], (0.5, 0.7, 0.9)
BEFORE, AROUND = 60, range(-50, 101, 5)
OFFSETS, WATCHED = (-100, -50, -20, 0, 20, 100), 48
MOMENTS = (-50, -20, 0, 20)
NEIGHBOURS, AHEAD, MOST = 15, 30, 12
EPOCHS, CONTINUED, START_EPOCHS, STARTED = 150, 32, 300, 16
NEAR, NOISE_EPOCHS, STEPS_AN_EPOCH = 0.5, 60, 64
SLICE, SLICE_EPOCHS = (1, 20, 61, 62, 85), 51  # runs that escape early, which the chapter trains again
QUARTILES = (0.25, 0.5, 0.75)
NAMES = ("token", "position", "query", "value", "receptors", "assemblers", "receptor_biases", "assembler_bias")
ARMS = {
    "all": (3e-3, 1.0),
    "feed-forward": (3e-12, 1e-9),
    "the rest": (3e-3, 1e9),
}  # learning rate and what divides the MLP's


def first(marks: Tensor, epochs: Tensor) -> list[int | None]:
    """Epoch of the first mark of each run; marks (T, M)."""
    found, at = marks.any(0).tolist(), epochs[marks.int().argmax(0)].tolist()
    return [epoch if one else None for one, epoch in zip(found, at, strict=True)]


def lasting(marks: Tensor, count: int = 10) -> Tensor:
    """Marks that the next ones share."""
    kept = torch.zeros_like(marks)
    kept[: len(marks) - count + 1] = marks.unfold(0, count, 1).all(-1)
    return kept


def quartiles(values: np.ndarray) -> list[list[float]]:
    """Of the last axis, for each entry of the first."""
    return np.nanquantile(values, QUARTILES, axis=-1).T.tolist()


def events(training: Training) -> dict:
    """What `events` of the module's description holds."""
    history, epochs = training.history, training.history["epoch"]
    step = int(epochs[1] - epochs[0])
    loss, accuracy = history["loss"], history["accuracy_all"]
    share = history["suffix"] + history["permutation"] - 1
    gradients = {name: history[f"gradient_{name}"].double() for name in NAMES}
    result: dict = {"every": step, "escape": first(loss < LEFT, epochs), "crossing": first(accuracy > SOLVED, epochs)}
    result |= {name: first(loss < level, epochs) for name, level in LEVELS.items()}
    if step == 1:
        result["slice"] = {str(run): loss[:SLICE_EPOCHS, run].tolist() for run in SLICE}
    result |= {"final": accuracy[-1].tolist(), "final_training": history["accuracy"][-1].tolist()}
    drops = [
        [find_drops(curve, fall, max(1, window // step), 9 if step == 1 else 3) for curve in loss.T]
        for fall, window in CRITERIA
    ]
    result["drops"] = [[len(found) for found in one] for one in drops]
    result["drop_starts"] = [[int(epochs[start]) for start, _ in found] for found in drops[0]]
    result["clustered"] = [first(lasting(share > level), epochs) for level in SHARES]
    late = [run for run, at in enumerate(result["escape"]) if at is not None and BEFORE < at < int(epochs[-1]) - max(AROUND)]
    generator = np.random.default_rng(0)
    curves = {"loss": loss, "accuracy": accuracy, "share": share}
    for kind in ("aligned", "baseline"):
        seen: dict[str, list] = {name: [] for name in (*curves, *NAMES)}
        for run in late:
            escape = result["escape"][run]
            center = escape if kind == "aligned" else int(generator.integers(BEFORE, int(epochs[-1]) - max(AROUND)))
            at = [(center + offset) // step for offset in AROUND]
            for name, curve in curves.items():
                seen[name].append(curve[at, run].tolist())
            for name, gradient in gradients.items():
                calm = gradient[10 // step : (escape - 20) // step + 1, run].median()
                seen[name].append((gradient[at, run] / calm).tolist())
        result[kind] = {"runs": len(late)} | {name: quartiles(np.array(rows).T) for name, rows in seen.items() if rows}
    fallen = (loss[:-1].log() - loss[1:].log()).T.unfold(1, max(1, 10 // step), 1).sum(-1)
    total = (
        sum(gradient.square() for gradient in gradients.values()).sqrt().T[:, 1:].unfold(1, max(1, 10 // step), 1).mean(-1)
    )
    result["correlation"] = [
        float(np.corrcoef(torch.stack([fallen[run].double(), total[run].log()]).argsort(1).argsort(1).numpy())[0, 1])
        for run in late
    ]
    return result


def around_escape(training: Training, escape: list) -> dict[int, list[int | None]]:
    """For each of OFFSETS, the snapshot of each run nearest before escape plus offset, where there is one."""
    last = max(training.snapshots)
    snap = lambda at: at // 10 * 10 if 10 <= at <= last else None  # noqa: E731
    return {offset: [None if at is None else snap(at + offset) for at in escape] for offset in OFFSETS}


def pick(training: Training, epoch: int, runs: list[int]) -> Models:
    """The models of these runs after an epoch, in double precision."""
    return training.snapshots[epoch][runs].double()


def nearest_accuracy(sequence: np.ndarray, targets: np.ndarray) -> float:
    """How often the majority of the nearest other sequence embeddings has a sequence's label."""
    scale = sequence.std(0).max()
    jitter = np.random.default_rng(0).standard_normal(sequence.shape) * 1e-6  # equal embeddings have no order
    points = sequence / (scale or 1.0) + jitter
    _, found = cKDTree(points).query(points, NEIGHBOURS + 1)
    return float(((targets[found[:, 1:]].mean(1) > 0.5) == targets).mean())


def measure(models: Models, nearest: bool = True) -> dict[str, list[float]]:
    """Parity coefficient and its company, of each model."""
    tokens, targets = TASK.all()
    stages, token = models.stages(tokens), models.weights["token"]
    margin = margins(models)
    parity = parity_coefficient(margin, TASK.k)
    return {
        "parity": parity.tolist(),
        "free": (2 * log_cosh_half(margin).mean(1)).tolist(),
        "power": margin.square().mean(1).tolist(),
        "apart": (token[:, 1] - token[:, 0]).norm(dim=1).tolist(),
        "output": stages["output"].norm(dim=2).amax(1).tolist(),
        "accuracy": ((margin > 0) == (targets == 1)).double().mean(1).tolist(),
        "nearest": [nearest_accuracy(one.numpy(), targets.numpy()) for one in stages["sequence"] if nearest],
    }


def walsh_part(training: Training, found: dict) -> dict:
    """What `walsh` of the module's description holds."""
    runs = [run for run, at in enumerate(found["escape"]) if at is not None][:WATCHED]
    table: dict = {
        name: [[None] * len(runs) for _ in OFFSETS] for name in ("parity", "free", "power", "apart", "nearest", "accuracy")
    }
    wanted: dict[int, list[tuple[int, int]]] = {}
    for row, at in enumerate(around_escape(training, [found["escape"][run] for run in runs]).values()):
        for column, epoch in enumerate(at):
            if epoch is not None:
                wanted.setdefault(epoch, []).append((row, column))
    for epoch, cells in tqdm(sorted(wanted.items())):
        values = measure(pick(training, epoch, [runs[column] for _, column in cells]))
        for at, (row, column) in enumerate(cells):
            for name in table:
                table[name][row][column] = values[name][at]
    last = [
        measure(pick(training, max(training.snapshots), list(range(at, min(at + 25, len(found["escape"]))))), nearest=False)
        for at in range(0, len(found["escape"]), 25)
    ]
    return {
        "offsets": list(OFFSETS),
        "runs": runs,
        "around": table,
        "end": {name: [value for part in last for value in part[name]] for name in ("apart", "output", "parity", "free")},
    }


def curvature_part(training: Training, found: dict) -> dict:
    """What `curvature` of the module's description holds."""
    escape = found["escape"]
    everything = TASK.all()
    tokens, targets = training_data(range(len(escape)), TASK)
    left = [run for run, at in enumerate(escape) if at is not None and 100 < at <= 950][:MOST]
    token = training.models.double().weights["token"]
    apart = (token[:, 1] - token[:, 0]).norm(dim=1)
    stuck = [run for run, at in enumerate(escape) if at is None and apart[run] > 0.1][:MOST]
    points = {
        "plateau": [(run, (escape[run] - AHEAD) // 10 * 10) for run in left],
        "after": [(run, -(-(escape[run] + AHEAD) // 10) * 10) for run in left],
        "stuck": [(run, max(training.snapshots)) for run in stuck],
    }
    result: dict = {}
    for kind, chosen in points.items():
        rows = []
        for run, epoch in tqdm(chosen, desc=kind):
            model = pick(training, epoch, [run])
            slope, hessian = curvature(model, tokens[run], targets[run])
            values, vectors = torch.linalg.eigh(hessian)
            low = vectors[:, values < -1e-3]
            rows.append(
                {
                    "run": run,
                    "epoch": epoch,
                    "wait": None if escape[run] is None else escape[run] - epoch,
                    "loss": training.history["loss"][epoch, run].item(),
                    "gradient": slope.norm().item(),
                    "least": values[0].item(),
                    "greatest": values[-1].item(),
                    "negative": low.shape[1],
                    "share": ((low.mT @ slope).norm() / slope.norm()).square().item(),
                    "noise": sum(training.history[f"gradient_{name}"][epoch, run].item() ** 2 for name in NAMES) ** 0.5,
                    "all_along": along_all(model, vectors[:, 0], everything),
                }
            )
        result[kind] = {name: [row[name] for row in rows] for name in rows[0]}
    return result


def along_all(model: Models, direction: Tensor, data: tuple[Tensor, Tensor]) -> float:
    """Second derivative of the loss over all sequences along a direction of unit length."""
    parts = direction.split([value.numel() for value in model.weights.values()])
    moves = {name: part.view_as(value) for (name, value), part in zip(model.weights.items(), parts, strict=True)}

    def loss(at: Tensor) -> Tensor:
        logits = model.moved(moves, at).logits(data[0])[0]
        return torch.nn.functional.cross_entropy(logits, data[1])

    at = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(loss(at), at, create_graph=True)
    return torch.autograd.grad(slope, at)[0].item()


def parts_part(training: Training, found: dict) -> dict:
    """What `parts` of the module's description holds."""
    escape, crossing = found["escape"], found["crossing"]
    result: dict = {"epochs": EPOCHS, "start_epochs": START_EPOCHS}
    later = [
        (run, -(-(at + 10) // 10) * 10)
        for run, at in enumerate(escape)
        if at is not None and at <= 960 and (crossing[run] is None or crossing[run] > at + 20)
    ][:CONTINUED]
    models = [pick(training, epoch, [run]) for run, epoch in later]
    start = Models.join(models).map(Tensor.float)
    seeds = [run for run, _ in later]
    result["runs"], result["from"] = seeds, [epoch for _, epoch in later]
    result["accuracy_before"] = measure(start.double())["accuracy"]
    for arm, (rate, discount) in ARMS.items():
        own = Settings(learning_rate=rate, mlp_discount=discount)
        done = train(seeds, replace(own, epochs=EPOCHS), Watch(every=10), start=start, compiled=False)
        result[arm] = {
            "best": done.history["accuracy_all"].amax(0).tolist(),
            "loss": done.history["loss"][-1].tolist(),
        }
        if arm == "all":
            continue
        done = train(range(STARTED), replace(own, epochs=START_EPOCHS), Watch(every=10), compiled=False)
        result[f"start: {arm}"] = {
            "best": done.history["accuracy_all"].amax(0).tolist(),
            "least_loss": done.history["loss"].amin(0).tolist(),
        }
    return result


def noise_part(training: Training, found: dict) -> dict:
    """What `noise` of the module's description holds."""
    epochs = sorted(training.snapshots)
    token = torch.stack([training.snapshots[epoch].weights["token"] for epoch in epochs])
    apart = (token[:, :, 1] - token[:, :, 0]).norm(dim=-1)
    runs = (apart[-1] < 0.1).nonzero().flatten().tolist()
    near = [epochs[int((apart[:, run] < NEAR).int().argmax())] for run in runs]
    begun = [epoch - 10 if epoch > 10 else 5 for epoch in near]
    models = [pick(training, epoch, [run]) for run, epoch in zip(runs, begun, strict=True)]
    start = Models.join(models).map(Tensor.float)
    steps = NOISE_EPOCHS * STEPS_AN_EPOCH
    result: dict = {"runs": runs, "from": begun, "steps": steps}
    for name, own in (("mini", Settings(epochs=NOISE_EPOCHS)), ("full", Settings(epochs=steps, batch_size=2048))):
        done = train(runs, own, Watch(every=own.epochs // NOISE_EPOCHS), start=start, compiled=False)
        end = done.models.weights["token"]
        result[name] = {
            "apart": (end[:, 1] - end[:, 0]).norm(dim=1).tolist(),
            "least_loss": done.history["loss"].amin(0).tolist(),
        }
    return result


def influences_part(training: Training, events: dict) -> dict:
    """What `influences` of the module's description holds."""
    epochs = np.array(sorted(training.snapshots))
    late = [run for run, at in enumerate(events["escape"]) if at is not None and at > BEFORE]
    sizes, parity = np.empty((len(late), len(MOMENTS), TASK.k)), np.empty((len(late), len(MOMENTS)))
    for row, run in enumerate(late):
        for column, offset in enumerate(MOMENTS):
            epoch = int(epochs[epochs <= events["escape"][run] + offset][-1])
            model = training.snapshots[epoch][[run]].double()
            sizes[row, column] = influences(model)[0, : TASK.k].sort().values
            parity[row, column] = parity_coefficient(margins(model), TASK.k).abs()[0]
    grown = {name: values[:, -1] / values[:, 0] for name, values in (("product", sizes.prod(-1)), ("parity", parity))}
    return {
        "moments": MOMENTS,
        "runs": len(late),
        "sorted": [quartiles(sizes[:, column].T) for column in range(len(MOMENTS))],
        "few": (sizes[..., 0] < sizes[..., -1] / 4).sum(0),
        "each": quartiles((sizes[:, -1] / sizes[:, 0]).T),
        **{name: np.quantile(values, QUARTILES) for name, values in grown.items()},
        "rank_correlation": spearmanr(grown["product"], grown["parity"]).statistic,
    }


@RECORD.section
def settings() -> dict:
    """What `events` counts as drops, and as clustered."""
    return {"criteria": CRITERIA, "shares": SHARES}


@RECORD.section
def events_() -> dict | None:
    """The events of every ensemble that is finished."""
    trained = {name: finished(name) for name in ("main", "full_batch", "dim_3", "dim_64")}
    return {name: events(training) for name, training in trained.items() if training} or None


def of_each(part: Callable[[Training, dict], dict], *names: str) -> dict | None:
    """A part of every ensemble that is finished and whose events are stored."""
    found = RECORD.stored().get("events", {})
    trained = {name: finished(name) for name in names if name in found}
    return {name: part(training, found[name]) for name, training in trained.items() if training} or None


@RECORD.section
def walsh() -> dict | None:
    """Parity coefficients, with mini-batches and with the full batch."""
    return of_each(walsh_part, "main", "full_batch")


@RECORD.section
def curvature_() -> dict | None:
    """Hessians of the main ensemble."""
    return of_each(curvature_part, "main")


@RECORD.section
def influences_() -> dict | None:
    """How the influences of the counted tokens grow in the main ensemble."""
    return of_each(influences_part, "main")


@RECORD.section
def parts() -> dict | None:
    """The main ensemble with a part of its parameters trained on."""
    return of_each(parts_part, "main")


@RECORD.section
def noise() -> dict | None:
    """Whether mini-batches lead the tokens of the main ensemble together."""
    return of_each(noise_part, "main")


if __name__ == "__main__":
    RECORD.main()
