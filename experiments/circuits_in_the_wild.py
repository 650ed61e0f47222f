"""What the training ensembles learned: circuits, attention, sparsity, ablations, transfer, wider embeddings.

    python experiments/circuits_in_the_wild.py [SECTION ...]

Writes results/circuits_in_the_wild.json from the records of experiments/ensembles.py. Computed are the sections
named, or else those that are missing; each takes in the ensembles that are finished and leaves out the others.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from ensembles import complete, record, settings
from lab import Record, rounded
from scipy.stats import mannwhitneyu, spearmanr
from torch import Tensor

from attnopt.clustering import (
    Models,
    Task,
    Training,
    activation_sparsity,
    attention_by_pair,
    counting_form,
    cyclic_step,
    position_effects,
    token_effects,
)
from attnopt.clustering.invariance import variance_shares
from attnopt.clustering.task import TEST_SEED

RECORD, TASK = Record("circuits_in_the_wild", engine="plain"), Task()
K, SUCCESS, AT_A_TIME = TASK.k, 0.9, 10
TOKENS, TARGETS = TASK.all()
THRESHOLDS = torch.logspace(-5, 2, 57, dtype=torch.float64).tolist()
DIMS = {2: "main"} | {dim: f"dim_{dim}" for dim in (3, 4, 8, 16, 32, 64)}


def exact(models: Models, chosen: Tensor | slice = slice(None)) -> Models:
    """The chosen models in float64."""
    return models[chosen].double()


def in_parts(models: Models, function: Callable[[Models], dict[str, Tensor]]) -> dict[str, Tensor]:
    """A function of some models at a time, joined."""
    parts = [function(exact(models, slice(at, at + AT_A_TIME))) for at in range(0, len(models), AT_A_TIME)]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def auc(larger: Tensor, smaller: Tensor) -> float:
    """How often the first is larger than the second, ties counting half."""
    return float(mannwhitneyu(larger, smaller).statistic / (len(larger) * len(smaller)))


def anatomy(models: Models) -> dict[str, Tensor]:
    """All that is said of a model with p = 2 from its sequence embeddings and its attention."""
    stages = models.stages(TOKENS)
    shares = variance_shares(stages["sequence"], TASK)
    weights, explained = counting_form(stages["sequence"], TASK)
    return {
        **shares,
        "mixture_suffix": variance_shares(stages["mixture"], TASK)["suffix"],
        "weights": weights,
        "explained": explained,
        "effects": position_effects(stages["sequence"], TASK),
        "pairs": attention_by_pair(stages["attention"], TOKENS),
    }


def one(models: Models, model: int) -> dict:
    """A single model, to be drawn."""
    return {name: rounded(value[model], 6) for name, value in models.weights.items()}


@RECORD.section
def realisations() -> dict:
    """Section 3.2: what the 200 models of "main" compute."""
    main = record("main")
    accuracy = main.history["accuracy_all"][-1]
    found = in_parts(main.models, anatomy)
    mass = found["pairs"].mean(1)[:, :K].sum(1)
    short = {
        epoch: [rounded(main.history[name][epoch, :10]) for name in ("loss", "accuracy_all")] for epoch in (0, 2, 5, 10, 20)
    }
    return {
        "accuracy": rounded(accuracy),
        "suffix": rounded(found["suffix"]),
        "permutation": rounded(found["permutation"]),
        "mixture_suffix": rounded(found["mixture_suffix"]),
        "weights": found["weights"].clamp(-99, 99).tolist(),
        "explained": rounded(found["explained"]),
        "mass": rounded(mass),
        "effects": rounded(found["effects"], 3),
        "attention": rounded(found["pairs"].mean(1), 3),
        "early": short,
    }


@RECORD.section
def elsewhere() -> None:
    """What "realisations" held when the same 200 seeds had been trained on another processor; kept, not computed again."""


@RECORD.section
def initialisation() -> dict:
    """Section 4.3, Figure 8: attention before and after training."""
    main = record("main")
    success = main.history["accuracy_all"][-1] > SUCCESS
    before = in_parts(main.snapshots[0], anatomy)
    after = in_parts(main.models, anatomy)
    result = {"pairs_before": rounded(before["pairs"].flatten(1), 3), "pairs_after": rounded(after["pairs"].flatten(1), 3)}
    own, others = rank_correlations(before["pairs"].flatten(1)[success], after["pairs"].flatten(1)[success])
    result["own"], result["others"] = rounded(own), rounded(np.quantile(others, [0.05, 0.25, 0.5, 0.75, 0.95]))
    result["others_mean"] = rounded(others.mean())
    result["mass_before"] = rounded(before["pairs"].mean(1)[:, :K].sum(1))
    return result


def rank_correlations(before: Tensor, after: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Spearman's correlation of each model's rows, and of each model's before with every other's after."""
    models = len(before)
    matrix = spearmanr(before.numpy(), after.numpy(), axis=1).statistic[:models, models:]
    return matrix.diagonal(), matrix[~np.eye(models, dtype=bool)]


@RECORD.section
def sparsity() -> dict:
    """Figures 10 and 19: sparsity against success, for every width of the embeddings that is there."""
    result = {"thresholds": rounded(torch.tensor(THRESHOLDS))}
    for dim, name in DIMS.items():
        if complete(name) and dim <= 32:
            result[str(dim)] = sparsity_of(record(name))
    main = record("main")
    accuracy, dense = main.history["accuracy_all"], -sparse(main.models)  # in the models' own float32
    success = accuracy[-1] > SUCCESS
    norm = receptor_norm(main.models)
    pairs = [(a, b) for a in success.nonzero().flatten() for b in (~success).nonzero().flatten()]
    pairs = [(a, b) for a, b in pairs if (norm[a] / norm[b]).log().abs() < math.log(1.1)]
    ahead = torch.stack([(dense[a] > dense[b]).double() + (dense[a] == dense[b]).double() / 2 for a, b in pairs])
    result["norm_auc"] = rounded(auc(norm[success], norm[~success]))
    result["norms"] = [rounded(norm[success]), rounded(norm[~success])]
    result["matched"] = {"pairs": len(pairs), "auc": rounded(ahead.mean(0))}
    result["before"] = {}
    for epoch in (0, 50, 100, 200):
        waiting = accuracy[: epoch + 1].amax(0) < 0.6
        late, never = waiting & success, waiting & ~success
        dense, norm = -sparse(main.snapshots[epoch]), receptor_norm(main.snapshots[epoch])
        result["before"][epoch] = {
            "runs": [int(late.sum()), int(never.sum())],
            "auc": [rounded(auc(dense[late, at], dense[never, at])) for at in range(len(THRESHOLDS))],
            "norm_auc": rounded(auc(norm[late], norm[never])),
        }
    return result


def receptor_norm(models: Models) -> Tensor:
    """Frobenius norm of the receptors and their biases."""
    weights = models.double().weights
    return (weights["receptors"].square().sum((1, 2)) + weights["receptor_biases"].square().sum(1)).sqrt()


def sparse(models: Models) -> Tensor:
    """Sparsity of each model at every threshold."""
    parts = [models[at : at + 10] for at in range(0, len(models), 10)]
    return torch.cat([activation_sparsity(part.stages(TOKENS)["activations"], THRESHOLDS).double() for part in parts])


def sparsity_of(training: Training) -> dict:
    """Curves of one ensemble."""
    accuracy, share = training.history["accuracy_all"][-1], sparse(training.models)
    success = accuracy > SUCCESS
    found = {"runs": len(accuracy), "succeeded": int(success.sum()), "accuracy": rounded(accuracy)}
    for name, group in (("success", share[success]), ("failure", share[~success])):
        if len(group):
            found[name] = rounded(group.quantile(torch.tensor([0.1, 0.5, 0.9]).double(), dim=0), 3)
    if 0 < success.sum() < len(success):
        found["auc"] = [rounded(auc(share[~success, at], share[success, at])) for at in range(share.shape[1])]
    return found


@RECORD.section
def ablations() -> dict:
    """Figure 16: accuracies of 100 runs a point; the default's are those of the first 100 seeds of "main".

    Under "nested" stand the widths whose neurons are the first of those of wider models, as in the released code.
    """
    result = {}
    for factor in ("batch_size", "width", "learning_rate", "mlp_discount", "nested"):
        names = ["main", *(name for name in settings() if name.startswith(f"{factor}_"))]
        points = {getattr(settings()[name].settings, factor.replace("nested", "width")): name for name in names}
        if factor == "batch_size":
            points[2048] = "full_batch"
        result[factor] = {
            f"{value:g}": rounded(record(points[value]).history["accuracy_all"][-1, :100], 3)
            for value in sorted(points)
            if complete(points[value])
        }
    return result


@RECORD.section
def transfer() -> dict:
    """Figures 9, 14, 15: a larger p, from scratch and from a model of p = 2."""
    result = {"scratch": {}, "tuned": {}, "grown": {}, "cyclic": {}}
    for p in range(3, 11):
        for kind in ("scratch", "tuned", "grown"):
            if complete(f"{kind}_p{p}"):
                training = record(f"{kind}_p{p}")
                accuracy = judged(training.models, p)
                result[kind][p] = rounded(accuracy)
                result[kind][f"training_{p}"] = rounded(training.history["accuracy"][-1])
                result["cyclic"][f"{kind}_{p}"] = cyclic(training, accuracy, p)
    if not complete("vocabulary_10"):
        return result
    start = record("vocabulary_10")
    two = start.models.replace(token=start.models.weights["token"][:, :2])
    found = in_parts(two, anatomy)
    result["start"] = {
        "accuracy": rounded(start.history["accuracy_all"][-1]),
        "suffix": rounded(found["suffix"]),
        "permutation": rounded(found["permutation"]),
        "weights": found["weights"].clamp(-99, 99).tolist(),
        "explained": rounded(found["explained"]),
        "mass": rounded(found["pairs"].mean(1)[:, :K].sum(1)),
    }
    before = start.models.replace(token=start.models.weights["token"][:, :3])
    if complete("tuned_p3"):
        result["tuned_p3"] = followed(before, record("tuned_p3"))
    if complete("grown_p3"):
        after = record("grown_p3")
        result["grown_p3"] = followed(after.snapshots[0], after)
    return result


def judged(models: Models, p: int) -> Tensor:
    """Accuracies of models on the 4096 random sequences that `train` tests them on, drawn apart from all training data."""
    tokens, targets = Task(p).sample(4096, torch.Generator().manual_seed(TEST_SEED))
    right = lambda part: {"right": (part.logits(tokens).argmax(-1) == targets).double().mean(1)}  # noqa: E731
    return in_parts(models, right)["right"]


def cyclic(training: Training, accuracy: Tensor, p: int) -> dict:
    """Of the models that succeed on a larger p: do they count u x + c_t modulo p, and the best one's parameters."""
    tokens, _ = Task(p).sample(20000, torch.Generator().manual_seed(1))
    found = {"success": (accuracy > SUCCESS).nonzero().flatten().tolist(), "step": [], "explained": [], "plain": []}
    for model in found["success"]:
        xi = exact(training.models[model]).stages(tokens)["sequence"]
        effects, explained = token_effects(xi, tokens, p)
        ranks = effects[0, :K].argsort(-1).argsort(-1)
        found["step"].append(int(cyclic_step(effects, K)))
        found["explained"].append(rounded(explained[0]))
        found["plain"].append(bool((ranks == ranks[0]).all()))
    if found["success"] and p > 3:
        best = int(accuracy.argmax())
        found["best"] = {"seed": best, "params": one(training.models, best)}
    return found


def followed(before: Models, training: Training) -> dict:
    """What becomes of models that go on to p = 3: errors, and attention before and after in those that succeed."""
    accuracy = judged(training.models, 3)
    tokens, _ = Task(3).sample(4096, torch.Generator().manual_seed(TEST_SEED))
    other = torch.cat([tokens[:, :K], tokens.roll(1, 0)[:, K:]], 1)

    def seen(models: Models) -> dict[str, Tensor]:
        stages, again = (models.stages(batch) for batch in (tokens, other))
        leak = {}
        for name in ("mixture", "sequence"):
            change = (stages[name] - again[name]).square().sum(-1).mean(1) / 2
            leak[name] = change / stages[name].var(1, correction=0).sum(-1)
        return {"pairs": attention_by_pair(stages["attention"], tokens), **leak}

    success = accuracy > SUCCESS
    first, last = (in_parts(exact(models, success), seen) for models in (before, training.models))
    own, others = rank_correlations(*(part["pairs"].flatten(1) for part in (first, last)))
    typical = np.argsort(own)[(len(own) - 1) // 2]
    return {
        "accuracy": rounded(accuracy),
        "errors": close_calls(training.models, accuracy),
        "own": rounded(own),
        "others": rounded(np.quantile(others, [0.05, 0.25, 0.5, 0.75, 0.95])),
        "mass_before": rounded(first["pairs"].mean(1)[:, :K].sum(1)),
        "mass_after": rounded(last["pairs"].mean(1)[:, :K].sum(1)),
        "mixture_leak": rounded(last["mixture"]),
        "leak": rounded(last["sequence"]),
        "seed": int(success.nonzero()[typical]),
        "pairs_before": rounded(first["pairs"][typical], 3),
        "pairs_after": rounded(last["pairs"][typical], 3),
    }


def close_calls(models: Models, accuracy: Tensor) -> dict[int, int]:
    """For each model that is almost always right on p = 3, how many of all sequences it gets wrong."""
    close = (accuracy > 0.99).nonzero().flatten()
    return dict(zip(close.tolist(), errors_at_three(exact(models, close)).tolist(), strict=True))


def errors_at_three(models: Models) -> Tensor:
    """Sequences of all 3^12 that each model gets wrong."""
    wrong = torch.zeros(len(models), dtype=torch.int64)
    everything, answers = Task(3).all()
    for tokens, wanted in zip(everything.split(2**14), answers.split(2**14), strict=True):
        wrong += (models.classify(models.sequences(tokens)).argmax(-1) != wanted).sum(1)
    return wrong


@RECORD.section
def wider() -> dict:
    """Appendix B: circuits, loss drops and loss spikes against gradient norms, for wider embeddings."""
    result = {}
    for dim, name in DIMS.items():
        if not complete(name):
            continue
        training = record(name)
        history = training.history
        accuracy = history["accuracy_all"][-1]
        found = in_parts(training.models, anatomy)
        every = slice(None, None, 5 if dim == 2 else 1)  # "main" is evaluated every epoch, the others every fifth
        loss = history["loss"][every].double()
        squares = sum(history[f"gradient_{part}"].double().square() for part in training.models.weights)
        if dim == 2:
            squares = torch.cat([squares[:1], squares[1:].unflatten(0, (-1, 5)).mean(1)])
        result[str(dim)] = {
            "accuracy": rounded(accuracy),
            "suffix": rounded(found["suffix"]),
            "permutation": rounded(found["permutation"]),
            "weights": found["weights"].clamp(-99, 99).tolist(),
            "explained": rounded(found["explained"]),
            "mass": rounded(found["pairs"].mean(1)[:, :K].sum(1)),
            "epochs_to_half": rounded(torch.stack([crossing(loss[:, run]) for run in range(loss.shape[1])])),
            **in_step(loss, squares.sqrt()),
            "example": {
                "seed": (typical := int(accuracy.argsort()[(len(accuracy) - 1) // 2 if dim > 2 else -len(accuracy) // 8])),
                "loss": rounded(loss[:, typical]),
                "gradient": rounded(squares.sqrt()[:, typical]),
            },
        }
    return result


def crossing(loss: Tensor) -> Tensor:
    """Epochs until a loss, taken every fifth, is below half of log 2; infinite if never."""
    below = (loss < math.log(2) / 2).nonzero()
    return 5.0 * below[0, 0] if len(below) else torch.tensor(math.inf)


def in_step(loss: Tensor, gradient: Tensor) -> dict:
    """Whether gradients are large where the loss falls fast, and where it jumps.

    For each run: the rank, from 0 to 1, of the gradient norm in the interval of the steepest fall among all intervals. For
    each jump of the loss to more than twice the mean of the three evaluations before it and by more than 0.05: the gradient
    norm of that interval over the mean of the three before it; and the same ratio in all other intervals.
    """
    fall, force = loss[:-1] - loss[1:], gradient[1:]
    steepest = fall.argmax(0)
    there = force.gather(0, steepest[None])
    rank = (force < there).double().mean(0)
    past = lambda values: values.unfold(0, 3, 1)[:-1].mean(-1)  # noqa: E731
    jump = (loss[3:] > 2 * past(loss)) & (loss[3:] > past(loss) + 0.05)
    ratio = (gradient[3:] / past(gradient))[1:]  # no gradient belongs to the evaluation before the first step
    jump = jump[1:]
    return {
        "rank_at_steepest": rounded(rank),
        "jumps": int(jump.sum()),
        "runs_with_jumps": int(jump.any(0).sum()),
        "ratio_at_jumps": rounded(ratio[jump].quantile(torch.tensor([0.1, 0.5, 0.9]).double())) if jump.any() else [],
        "ratio_elsewhere": rounded(torch.tensor(np.quantile(ratio[~jump], [0.1, 0.5, 0.9]))),
        "jump_auc": rounded(auc(ratio[jump], ratio[~jump])) if jump.any() else None,
    }


if __name__ == "__main__":
    RECORD.main()
