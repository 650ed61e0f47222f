"""What initial weights, data, fresh sequences, and time have to do with success.

    python experiments/how_long.py [origins | rounding | fresh | whole | luck | vocabularies | growth | relevant]

Writes results/how_long.json. All models have the default settings except where it is said, and are trained by compiled
steps. An epoch is 2048 sequences. A run has escaped in the first evaluated epoch whose loss lies below `escape_level`, and
succeeds if more than 0.9 of all sequences are right (of a sample of 4096 where there are more than 8192).

Rules of "origins" and "luck", fixed before the runs:

origins  For 500 numbers i, three runs of 1000 epochs: weights i with data i, weights i with data i + 500, and weights i +
         500 with data i, where the weights of number i are those of seed 20,000 + i and its data those of seed 30,000 + i.
         The order of the batches is the same for all. Of a quantity X of a run, Var X = W + D + I: W is the covariance of
         two runs with the same weights and other data, D that of two with the same data and other weights, I the rest. X is
         success after the last epoch (0 or 1), and the logarithm of the escape epoch, evaluated every fifth epoch, 1000
         where there is none. Reported: W, D, and I as shares of Var X, with 95% intervals from drawing the 500 triples
         again (2000 times). Weights matter more than data if the interval of W - D lies above 0, and data matter more if it
         lies below.
luck     For p = 5, a hundred runs of 10,000 epochs on seeds 0 to 99, whose initial weights and data are those of the
         earlier runs of 1000 epochs, and a hundred with the same initial weights and examples that never repeat. Counted:
         successes at the end. Six or more in each hundred point to time, two or fewer in each to luck in the
         initialization; anything else leaves the question open. Also stored: the first evaluated epoch, of every fiftieth,
         with more than 0.9 right, from which the hazard per thousand epochs follows.
vocabularies  The fixed half of "luck" for p = 3 and p = 7, and for p = 5 the seeds in which plain steps had succeeded within
         1000 epochs, again with plain steps. Nothing is decided by these numbers.
fresh    A hundred runs of 600 epochs each for k = 2, ..., 6, seeds 7000 to 7099, once with a fixed training set and once
         with new sequences in every epoch, from the same initial weights, evaluated every fifth epoch on all sequences.
         Counted: runs that escape, and runs whose token embeddings end less than 0.1 apart. This was looked at for k = 2, 3,
         and 5 before it was written down, and no rule was fixed.
whole    The same for k = 2, ..., 6 with all 4096 sequences as the training set, for 300 epochs, which are as many steps.
         Added after a referee had found that such runs collapse as often, and so without a rule.
rounding PAIRS of the runs "weights i with data i" of "origins" once more, and again with all initial weights multiplied by
         1 + 1e-6.
         Reported: the share of the variance of success and of the logarithm of the escape epoch that the two have in common,
         which is what weights, data, and the order of the batches decide, with an interval from drawing the pairs again.
         Without a rule.
growth   A hundred runs each for k = 3 and L = 8, ..., 16, seeds 50,000 to 50,099, on fresh sequences, with the difference of
         the two token embeddings held at its initial value: after every step, both are moved by the same vector so that it
         is restored. Evaluated after every epoch, until ENOUGH runs have escaped or 3000 epochs have passed. The rule is
         that of an open problem of "One picture": the slope of the logarithm of the median escape against log L at k = 3,
         with a 95% interval from drawing the runs again, supports a growth like Lᵏ if the interval lies above 2 and contains
         3, and a slower growth if it lies below 2; anything else, or a median beyond the last epoch, leaves the question
         open. ENOUGH was lowered from 90 to 75 after the first four lengths, to save time; neither the medians nor their
         intervals depend on it.
relevant The same for L = 12 and k in FEW, without a rule; k = 5 and 6 were planned, and left out to save time.
"""

import math

import lab
import numpy as np
import torch
from torch import Tensor

from attnopt.clustering import (
    Models,
    Settings,
    Task,
    Training,
    Watch,
    ensemble,
    escape_epochs,
    escape_level,
    initial_models,
    train,
)
from attnopt.clustering.training.step import Pace, State
from attnopt.clustering.training.trainer import advance, begin

RUNS, FIRST, LONGEST, SHORT, EVERY = 100, 7000, 10_000, 600, 5
COUNTS, NEAR = range(2, 7), 0.1
SPARSE, SUCCESS = 50, 0.9
TRIPLES, WEIGHTS, DATA, EPOCHS = 500, 20_000, 30_000, 1000
LENGTHS, FEW, HELD, MOST, ENOUGH, PAIRS = range(8, 17), (2, 3, 4), 50_000, 3000, 75, 200
TIMES = 2000
RECORD = lab.Record("how_long", 5, engine="compiled")


def fresh(seeds: range, settings: Settings, every: int, whole: bool = False) -> tuple[list[int], Tensor, Tensor, Models]:
    """Train models on new sequences in every epoch.

    Args:
        seeds: of the initial weights; the first one and the epoch decide what is drawn.
        settings: of the models, all alike.
        every: epochs between evaluations on all sequences, or the task's sample of them.
        whole: train on all sequences instead, each once per epoch; there must be ``settings.n_train`` of them.

    Returns:
        Epochs, losses and accuracies of the evaluations, the latter two of shape (evaluations, M), and the models.
    """
    threads, start = torch.get_num_threads(), initial_models(seeds, settings)
    watch = Watch(every=settings.epochs or 1)
    engine, state, pace, record = begin(list(seeds), settings.each(len(seeds)), watch, start, True, threads)
    epochs, losses, right = [], [], []
    for epoch in range(settings.epochs + 1):
        if epoch % every == 0 or epoch == settings.epochs:
            loss, hit, _ = engine.predict(state.rows, record.evaluation.test)
            epochs.append(epoch)
            losses.append(loss.mean(1))
            right.append(hit.mean(1))
        if epoch < settings.epochs:
            if whole:
                engine.data = engine.sequences(*(part.expand(len(seeds), *part.shape) for part in settings.task.all()))
            else:
                engine.data = engine.sequences(*drawn(seeds, settings, epoch))
            advance(engine, state, pace, record)
    return epochs, torch.stack(losses), torch.stack(right), record.models_of(state.rows)


def held_escapes(seeds: range, settings: Settings) -> Tensor:
    """The epoch in which each model leaves the plateau, -1 for never, on fresh sequences, its two tokens held apart.

    Args:
        seeds: of the initial weights; the first one and the epoch decide what is drawn.
        settings: of the models, all alike; the vocabulary has two tokens.
    """
    watch, start = Watch(every=settings.epochs), initial_models(seeds, settings)
    engine, state, pace, record = begin(list(seeds), settings.each(len(seeds)), watch, start, True, torch.get_num_threads())
    tokens = engine.layout.views(state.rows)["token"]
    apart, whole = tokens - tokens.mean(1, keepdim=True), engine.epoch

    def epoch(state: State, order: Tensor, pace: Pace, squares: Tensor, spread: Tensor | None = None) -> None:
        pairs, labels = engine.data
        for batch in order.split(pace.size):
            engine.data = pairs[:, batch].contiguous(), labels[:, batch].contiguous()
            whole(state, torch.arange(len(batch)), pace, squares, spread)
            tokens.copy_(tokens.mean(1, keepdim=True) + apart)

    engine.epoch, left = epoch, torch.full((len(seeds),), -1)
    for now in range(settings.epochs + 1):
        low = engine.predict(state.rows, record.evaluation.test)[0].mean(1) < escape_level(settings.task.p)
        left = torch.where(low & (left < 0), now, left)
        if (left >= 0).sum() >= ENOUGH:
            break
        if now < settings.epochs:
            engine.data = engine.sequences(*drawn(seeds, settings, now))
            advance(engine, state, pace, record)
    return left


@RECORD.section
def growth() -> dict:
    """How the median escape grows with L at k = 3 if the tokens are held apart."""
    found = held({str(length): Task(2, length, 3) for length in LENGTHS})
    return found | {"slope": slope({int(length): np.array(left) for length, left in found["escapes"].items()})}


@RECORD.section
def relevant() -> dict:
    """How it grows with k at L = 12."""
    return held({str(k): Task(2, 12, k) for k in FEW})


def held(tasks: dict[str, Task]) -> dict:
    """The escapes of RUNS runs of each task."""
    torch.set_num_threads(1)
    found = {}
    for name, task in tasks.items():
        left = held_escapes(range(HELD, HELD + RUNS), Settings(task, epochs=MOST))
        found[name] = left.tolist()
        print(name, float(median(left.numpy())), int((left >= 0).sum()), flush=True)
    return {"escapes": found}


def median(left: np.ndarray) -> np.ndarray:
    """The median escape along the last axis; those that never escape are the longest."""
    return np.median(np.where(left < 0, np.inf, left), -1)


def slope(escapes: dict[int, np.ndarray]) -> list[float]:
    """Of log median against log L, and its 95% interval from drawing the runs of each length again."""
    rng, x = np.random.default_rng(0), np.log(list(escapes))
    fitted = lambda medians: np.polyfit(x, np.log(medians), 1)[0]  # noqa: E731
    drawn_again = ([median(left[rng.integers(0, len(left), len(left))]) for left in escapes.values()] for _ in range(TIMES))
    again = [fitted(medians) for medians in drawn_again if np.isfinite(medians).all()]
    return [float(fitted([median(left) for left in escapes.values()])), *map(float, np.quantile(again, (0.025, 0.975)))]


def drawn(seeds: range, settings: Settings, epoch: int) -> tuple[Tensor, Tensor]:
    """The sequences (M, n, L) and labels (M, n) of an epoch."""
    generator = torch.Generator().manual_seed((seeds[0] << 20) + epoch)
    task = settings.task
    tokens = torch.randint(task.p, (len(seeds), settings.n_train, task.length), generator=generator)
    return tokens, task.labels(tokens)


@RECORD.section
def luck() -> dict:
    """Successes within 10,000 epochs at p = 5, with a fixed training set and with fresh sequences."""
    torch.set_num_threads(2)
    settings, seeds, found = Settings(Task(5), epochs=LONGEST), range(RUNS), {}
    folder = lab.CACHE / "how_long" / "luck"
    fixed = ensemble(seeds, settings, folder, watch=Watch(every=SPARSE), chunk=50, jobs=1, compiled=True, progress=True)
    unending = fresh(seeds, settings, SPARSE)
    for name, (epochs, _, right) in {"fixed": curves(fixed), "fresh": unending[:3]}.items():
        found[name] = counted(epochs, right)
    return found


@RECORD.section
def vocabularies() -> dict:
    """Successes within 10,000 epochs at p = 3 and p = 7, and the one of p = 5 again with plain steps."""
    torch.set_num_threads(2)
    found: dict = {}
    for p in (3, 7):
        run = train(range(RUNS), Settings(Task(p), epochs=LONGEST), Watch(every=SPARSE), compiled=True)
        epochs, _, right = curves(run)
        found[f"p{p}"] = counted(epochs, right)
    again = train(range(RUNS), Settings(Task(5), epochs=EPOCHS), Watch(every=SPARSE), compiled=False)
    return found | {"again": curves(again)[2][-1].tolist()}


@RECORD.section
def fresh_() -> dict:
    """Escapes and coinciding tokens, with a fixed training set and with fresh sequences."""
    torch.set_num_threads(2)
    seeds, found = range(FIRST, FIRST + RUNS), {}
    for k in COUNTS:
        settings = Settings(Task(2, 12, k), epochs=SHORT)
        fixed = train(seeds, settings, Watch(every=EVERY), compiled=True)
        runs = {"fixed": (*curves(fixed), fixed.models), "fresh": fresh(seeds, settings, EVERY)}
        found[f"k{k}"] = {name: told(*run) for name, run in runs.items()}
        print(k, {name: (entry["escaped"], entry["coincide"]) for name, entry in found[f"k{k}"].items()}, flush=True)
    return found


@RECORD.section
def whole() -> dict:
    """Escapes and coinciding tokens, with all sequences as the training set."""
    torch.set_num_threads(1)
    seeds, found = range(FIRST, FIRST + RUNS), {}
    for k in COUNTS:
        settings = Settings(Task(2, 12, k), n_train=2**12, epochs=SHORT // 2)
        found[f"k{k}"] = told(*fresh(seeds, settings, EVERY, whole=True))
        print(k, found[f"k{k}"]["escaped"], found[f"k{k}"]["coincide"], flush=True)
    return found


def counted(epochs: list[int], right: Tensor) -> dict:
    """How many of the runs end in success, when each first succeeded (-1 for never), and their final accuracies."""
    above = right > SUCCESS
    first = torch.where(above.any(0), torch.tensor(epochs)[above.int().argmax(0)], -1)
    found = {"successes": int(above[-1].sum()), "first": first.tolist(), "final": right[-1].tolist()}
    print(found["successes"], int((first >= 0).sum()), flush=True)
    return found


def curves(training: Training) -> tuple[list[int], Tensor, Tensor]:
    """Epochs, losses, and accuracies on all sequences; the loss is that of the training set."""
    return training.history["epoch"].tolist(), training.history["loss"], training.history["accuracy_all"]


def told(epochs: list[int], losses: Tensor, right: Tensor, models: Models) -> dict:
    """How many runs escape, when, how many succeed, and in how many the tokens end close together."""
    left = escape_epochs({"epoch": torch.tensor(epochs), "loss": losses}, models.vocabulary)
    apart = (models.weights["token"][:, 1] - models.weights["token"][:, 0]).norm(dim=-1)
    return {
        "escaped": int((left >= 0).sum()),
        "median escape": float(left[left >= 0].double().median()) if (left >= 0).any() else None,
        "succeeded": int((right[-1] > SUCCESS).sum()),
        "coincide": int((apart < NEAR).sum()),
        "coincide of those that stay": int((apart[left < 0] < NEAR).sum()),
    }


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
    found: dict = {}
    for kind in ("success", "log escape"):
        values = [seen[name][kind] for name in ("base", "other_data", "other_weights")]
        found[kind] = parted(*values) | {"mean": float(np.mean(values)), "variance": float(np.var(values))}
    escaped = [np.mean(seen[name]["log escape"] < math.log(EPOCHS)) for name in seen]
    return found | {"escaped": float(np.mean(escaped))}


@RECORD.section
def rounding() -> dict:
    """How far success and escape are decided by weights, data, and the order of batches, up to rounding."""
    torch.set_num_threads(1)
    seen: list[dict[str, np.ndarray]] = []
    for factor in (1.0, 1 + 1e-6):
        start = initial_models(range(WEIGHTS, WEIGHTS + PAIRS)).map(lambda value, factor=factor: factor * value)
        watch, seeds = Watch(every=EVERY), range(DATA, DATA + PAIRS)
        history = train(seeds, Settings(epochs=EPOCHS), watch, start=start, compiled=True).history
        left = escape_epochs(history, 2)
        seen.append(
            {
                "success": (history["accuracy_all"][-1] > SUCCESS).double().numpy(),
                "log escape": torch.where(left >= 0, left, EPOCHS).double().log().numpy(),
            }
        )
    found: dict = {}
    for kind in ("success", "log escape"):
        pairs = np.stack([values[kind] for values in seen], 1)
        rng = np.random.default_rng(0)
        again = [common(pairs[rng.integers(0, PAIRS, PAIRS)]) for _ in range(TIMES)]
        found[kind] = [common(pairs), *map(float, np.quantile(again, (0.025, 0.975)))]
    return found


def common(pairs: np.ndarray) -> float:
    """The share of the variance that the two members of pairs, shape (count, 2), have in common."""
    centered = pairs - pairs.mean()
    return float((centered[:, 0] * centered[:, 1]).mean() / (centered**2).mean())


if __name__ == "__main__":
    RECORD.main()
