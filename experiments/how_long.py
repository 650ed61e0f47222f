"""How long training takes to leave the plateau, and what decides it.

    python experiments/how_long.py [length | luck | others | origins ...]

Writes results/how_long.json. All models have the default settings except where it is said, and are trained by compiled
steps. An epoch is 2048 sequences. A run has escaped in the first evaluated epoch whose loss lies below `escape_level`, and
succeeds if more than 0.9 of all sequences are right (of a sample of 4096 where there are more than 8192). Rules, fixed
before the runs:

length   A hundred runs each for k = 2, ..., 6 at L = 12 and for L = 8, ..., 16 at k = 3, with fresh sequences in every
         batch, on seeds 7000 to 7099, evaluated every fifth epoch on all sequences (or the sample). A setting stops when 65
         runs have escaped, or at four times the epoch at which the 51st did, or after 10,000 epochs; a run that has not
         escaped by then counts as later than all others, and in the resampling as if it escaped there. (When it stops was
         changed twice, before any of the lengths had been run; of the counts, only the median at k = 2 had been seen.)
         Reported: the median escape, and the slope of the median's logarithm against log L at k = 3 by least squares over
         the nine lengths, with its 95% interval from drawing the runs of each length again (2000 times). An interval above
         2 that contains 3 supports growth like L^k, one below 2 supports slower growth; anything else, or a median beyond
         10,000 epochs, leaves the question open. The growth with k is reported as the ratios of successive medians, without
         a rule.
luck     For p = 5, a hundred runs of 10,000 epochs on seeds 0 to 99, whose initial weights and data are those of the
         earlier runs of 1000 epochs, and a hundred with the same initial weights and examples that never repeat. Counted:
         successes at the end. Six or more in each hundred point to time, two or fewer in each to luck in the
         initialization; anything else leaves the question open. Also stored: the first evaluated epoch, of every fiftieth,
         with more than 0.9 right, from which the hazard per thousand epochs follows.
others   The same as "luck" for p = 3 and p = 7, for comparison, without a rule.
origins  For 500 numbers i, three runs of 1000 epochs: weights i with data i, weights i with data i + 500, and weights i +
         500 with data i, where the weights of number i are those of seed 20,000 + i and its data those of seed 30,000 + i.
         The order of the batches is the same for all. Of a quantity X of a run, Var X = W + D + I: W is the covariance of
         two runs with the same weights and other data, D that of two with the same data and other weights, I the rest. X is
         success after the last epoch (0 or 1), and the logarithm of the escape epoch, evaluated every fifth epoch, 1000
         where there is none. Reported: W, D, and I as shares of Var X, with 95% intervals from drawing the 500 triples
         again (2000 times). Weights matter more than data if the interval of W - D lies above 0, and data matter more if it
         lies below.
"""

import math
from collections.abc import Callable

import lab
import numpy as np
import torch
from torch import Tensor

from attnopt.clustering import (
    Settings,
    Task,
    Watch,
    ensemble,
    escape_epochs,
    escape_level,
    initial_models,
    train,
)
from attnopt.clustering.training.trainer import advance, begin

RUNS, FIRST, LONGEST, ESCAPED, PATIENCE, EVERY = 100, 7000, 10_000, 65, 4, 5
LENGTHS, COUNTS = range(8, 17), range(2, 7)
SPARSE, SUCCESS = 50, 0.9
TRIPLES, WEIGHTS, DATA, EPOCHS = 500, 20_000, 30_000, 1000
TIMES = 2000
RECORD = lab.Record("how_long", 5)


def fresh(
    seeds: range, settings: Settings, every: int, done: Callable[[int, Tensor, Tensor], bool]
) -> tuple[list[int], Tensor, Tensor]:
    """Train models on sequences that never repeat, until ``done`` or the last epoch.

    Args:
        seeds: of the initial weights; the first one and the epoch decide what is drawn.
        settings: of the models, all alike.
        every: epochs between evaluations on all sequences, or the task's sample of them.
        done: whether to stop, asked at each evaluation with the epoch, the losses (M,), and the accuracies (M,).

    Returns:
        Epochs, losses and accuracies of the evaluations, the latter two of shape (evaluations, M).
    """
    threads = torch.get_num_threads()
    grid = settings.each(len(seeds))
    start = initial_models(seeds, settings)
    engine, state, pace, record = begin(list(seeds), grid, Watch(every=settings.epochs or 1), start, True, threads)
    test, epochs, losses, right = record.evaluation.test, [], [], []
    for epoch in range(settings.epochs + 1):
        if epoch % every == 0 or epoch == settings.epochs:
            loss, hit, _ = engine.predict(state.rows, test)
            epochs.append(epoch)
            losses.append(loss.mean(1))
            right.append(hit.mean(1))
            if done(epoch, losses[-1], right[-1]):
                break
        if epoch < settings.epochs:
            engine.data = engine.sequences(*drawn(seeds, settings, epoch))
            advance(engine, state, pace, record)
    return epochs, torch.stack(losses), torch.stack(right)


def drawn(seeds: range, settings: Settings, epoch: int) -> tuple[Tensor, Tensor]:
    """The sequences (M, n, L) and labels (M, n) of an epoch."""
    generator = torch.Generator().manual_seed((seeds[0] << 20) + epoch)
    task = settings.task
    tokens = torch.randint(task.p, (len(seeds), settings.n_train, task.length), generator=generator)
    return tokens, task.labels(tokens)


def escapes(seeds: range, settings: Settings) -> tuple[list[float], int]:
    """The epoch in which each run escapes, infinite if it has not when training stops, and the epoch when it stops."""
    level = escape_level(settings.task.p)
    left = torch.full((len(seeds),), math.inf)

    def done(epoch: int, losses: Tensor, _: Tensor) -> bool:
        left[(losses < level) & left.isinf()] = epoch
        return bool(left.isfinite().sum() >= ESCAPED or epoch >= PATIENCE * left.sort().values[len(left) // 2])

    epochs, _, _ = fresh(seeds, settings, EVERY, done)
    return left.tolist(), epochs[-1]


def slope(medians: np.ndarray, lengths: np.ndarray) -> float:
    """Least-squares slope of the logarithm of medians against the logarithm of lengths."""
    x, y = np.log(lengths) - np.log(lengths).mean(), np.log(medians)
    return float(x @ y / (x @ x))


def growth(left: dict[int, list[float]], last: dict[int, int]) -> list[float]:
    """The slope against the length, and its interval from drawing each length's runs again.

    Args:
        left: by length, the epochs in which runs escape.
        last: by length, the epoch when training stops, which counts for runs that have not escaped.
    """
    rng, lengths = np.random.default_rng(0), np.array(sorted(left))
    runs = [np.minimum(left[length], last[length]) for length in sorted(left)]
    again = [slope(np.array([np.median(rng.choice(one, len(one))) for one in runs]), lengths) for _ in range(TIMES)]
    return [slope(np.array([np.median(one) for one in runs]), lengths), *map(float, np.quantile(again, (0.025, 0.975)))]


@RECORD.section
def length() -> dict:
    """Escapes with fresh sequences, against k and against L."""
    torch.set_num_threads(2)
    found: dict = {"counts": {}, "lengths": {}, "last": {"counts": {}, "lengths": {}}}
    seeds = range(FIRST, FIRST + RUNS)
    for kind, tasks in (
        ("counts", {k: Task(2, 12, k) for k in COUNTS}),
        ("lengths", {size: Task(2, size, 3) for size in LENGTHS}),
    ):
        for name, task in tasks.items():
            found[kind][name], found["last"][kind][name] = escapes(seeds, Settings(task, epochs=LONGEST))
            print(kind, name, np.median(found[kind][name]), found["last"][kind][name], flush=True)
    medians = {k: float(np.median(left)) for k, left in found["counts"].items()}
    ratios = [medians[k + 1] / medians[k] for k in list(medians)[:-1]]
    late = any(np.isinf(np.median(left)) for left in found["lengths"].values())
    return found | {
        "slope": None if late else growth(found["lengths"], found["last"]["lengths"]),
        "ratios": ratios,
        "engine": "compiled",
    }


def lucky(p: int) -> dict:
    """Successes of a hundred runs with a fixed training set, and of a hundred with fresh sequences."""
    torch.set_num_threads(2)
    settings, seeds, found = Settings(Task(p), epochs=LONGEST), range(RUNS), {}
    folder = lab.CACHE / "how_long" / f"luck_{p}"
    fixed = ensemble(seeds, settings, folder, watch=Watch(every=SPARSE), chunk=50, jobs=1, compiled=True, progress=True)
    curves = {"fixed": (fixed.history["epoch"].tolist(), fixed.history["accuracy_all"])}
    epochs, _, right = fresh(seeds, settings, SPARSE, lambda *_: False)
    curves["fresh"] = epochs, right
    for name, (epochs, right) in curves.items():
        above = right > SUCCESS
        first = torch.where(above.any(0), torch.tensor(epochs)[above.int().argmax(0)], -1)
        found[name] = {"successes": int(above[-1].sum()), "first": first.tolist(), "final": right[-1].tolist()}
        print(p, name, found[name]["successes"], int((first >= 0).sum()), flush=True)
    return found | {"engine": "compiled"}


@RECORD.section
def luck() -> dict:
    """Successes within 10,000 epochs at p = 5."""
    return lucky(5)


@RECORD.section
def others() -> dict:
    """The same at p = 3 and p = 7."""
    return {f"p{p}": lucky(p) for p in (3, 7)}


def shares(base: np.ndarray, other_data: np.ndarray, other_weights: np.ndarray) -> np.ndarray:
    """W, D and I as shares of the variance, from runs of the same numbers in the same places, shape (3,)."""
    everyone = np.concatenate([base, other_data, other_weights])
    centered = [values - everyone.mean() for values in (base, other_data, other_weights)]
    variance = np.mean([np.mean(values**2) for values in centered])
    weights, data = np.mean(centered[0] * centered[1]) / variance, np.mean(centered[0] * centered[2]) / variance
    return np.array([weights, data, 1 - weights - data])


def parted(base: np.ndarray, other_data: np.ndarray, other_weights: np.ndarray) -> dict:
    """The shares and the difference of the first two, with intervals from drawing triples again."""
    rng, count = np.random.default_rng(0), len(base)
    told = lambda values: np.append(values, values[0] - values[1])  # noqa: E731
    again = []
    for _ in range(TIMES):
        at = rng.integers(0, count, count)
        again.append(told(shares(base[at], other_data[at], other_weights[at])))
    low, high = np.quantile(again, (0.025, 0.975), axis=0)
    names = "weights", "data", "interaction", "weights minus data"
    values = told(shares(base, other_data, other_weights))
    return {name: [float(values[at]), float(low[at]), float(high[at])] for at, name in enumerate(names)}


@RECORD.section
def origins() -> dict:
    """How far initial weights and data decide success and escape."""
    torch.set_num_threads(2)
    settings, watch = Settings(epochs=EPOCHS), Watch(every=EVERY)
    seen = {}
    for name, weights, data in (("base", 0, 0), ("other_data", 0, TRIPLES), ("other_weights", TRIPLES, 0)):
        start = initial_models(range(WEIGHTS + weights, WEIGHTS + weights + TRIPLES))
        seeds = range(DATA + data, DATA + data + TRIPLES)
        history = train(seeds, settings, watch, start=start, compiled=True, progress=True).history
        left = escape_epochs(history, 2)
        seen[name] = {
            "success": (history["accuracy_all"][-1] > SUCCESS).double().numpy(),
            "log escape": torch.where(left >= 0, left, EPOCHS).double().log().numpy(),
        }
    found: dict = {"engine": "compiled"}
    for kind in ("success", "log escape"):
        values = [seen[name][kind] for name in ("base", "other_data", "other_weights")]
        found[kind] = parted(*values) | {"mean": float(np.mean(values)), "variance": float(np.var(values))}
    escaped = [np.mean(seen[name]["log escape"] < math.log(EPOCHS)) for name in seen]
    return found | {"escaped": float(np.mean(escaped))}


if __name__ == "__main__":
    RECORD.main()
