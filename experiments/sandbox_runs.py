"""The recorded runs of the visual sandbox: typical ones out of 200, and one that goes on from p = 2 to p = 3.

    python experiments/sandbox_runs.py

Writes src/attnopt/data/sandbox_runs.npz. The 200 runs are those of the ensemble "main" (experiments/ensembles.py), which is
trained unless it has been; of these are chosen

    success             right on all sequences with both invariances above 0.99: the median in reaching 98 %
    failure             right on less than 55 % at the end: the median in final loss
    spike               right on all at the end: the loss that rises highest in one epoch from below 0.01
    faulty_attention    as success: the most attention on spurious tokens, as a mean over all sequences
    partial_invariance  right on all: the least suffix invariance
    pattern             right on all with suffix invariance above 0.99: the least permutation invariance

and from the ensembles "vocabulary_10", trained with p = 2, and "tuned_p3", which goes on from it with three of its tokens,
p = 3 and a fresh Adam,

    fine_tuning         right on 98 % at the end: the median in final loss

All are trained again, to the same numbers, with a snapshot after every epoch, and kept in .cache; the seconds noted are
those of the last call. The frames are the epochs at equal distances along the curve of the logarithm of the loss, and all
epochs about its largest jump.
"""

import time

import numpy as np
import torch
from ensembles import CACHE, record
from lab import guarded, provenance, rounded
from torch import Tensor

from attnopt.clustering import Models, Run, Settings, Task, Training, Watch, train
from attnopt.clustering.invariance import variance_shares
from attnopt.clustering.sandbox import DATA, LAYERS, pack, save_runs

FRAMES, THINNED = 120, 5  # frames a run, about; epochs from one point of the history to the next
TASK, EPOCHS = Task(), 1000
PREFIX = TASK.k
WITH_BIAS = {"receptors": "receptor_biases", "assemblers": "assembler_bias"}
HISTORY = {"loss": "loss", "train": "accuracy", "unseen": "accuracy_unseen", "all": "accuracy_all"}
SETTINGS = {"n_train": 2048, "epochs": EPOCHS, "batch_size": 32, "learning_rate": 3e-3, "optimiser": "Adam", "width": 32}


def spurious_share(models: Models) -> Tensor:
    """Attention on the tokens after the prefix, as a mean over all sequences, shape (M,)."""
    tokens, _ = TASK.all()
    attention = [models[at : at + 10].stages(tokens)["attention"] for at in range(0, len(models), 10)]
    return torch.cat([weights[..., PREFIX:].sum(-1).mean(1) for weights in attention])


def first(wanted: Tensor, measure: Tensor) -> int:
    """The wanted model of least measure."""
    return int(torch.where(wanted, measure, torch.inf).argmin())


def median(wanted: Tensor, measure: Tensor) -> int:
    """The wanted model of median measure, the lower of two."""
    seeds = wanted.nonzero()[:, 0]
    return int(seeds[measure[seeds].argsort(stable=True)[(len(seeds) - 1) // 2]])


def reached(training: Training) -> Tensor:
    """The epoch from which 98 % of the answers are right for the first time, or 0."""
    return training.history["epoch"][(training.history["accuracy_all"] >= 0.98).int().argmax(0)]


def choose(training: Training, spurious: Tensor) -> dict[str, int]:
    """The seed of each kind, by the measures at the top."""
    final = {name: values[-1] for name, values in training.history.items() if name != "epoch"}
    right, loss = final["accuracy_all"] == 1, training.history["loss"]
    ideal = right & (final["suffix"] > 0.99) & (final["permutation"] > 0.99)
    rises = torch.where(loss[:-1] < 0.01, loss[1:], 0.0).amax(0)
    return {
        "success": median(ideal, reached(training)),
        "failure": median(final["accuracy_all"] < 0.55, final["loss"]),
        "spike": first(right, -rises),
        "faulty_attention": first(ideal, -spurious),
        "partial_invariance": first(right, final["suffix"]),
        "pattern": first(right & (final["suffix"] > 0.99), final["permutation"]),
    }


def best_pattern(training: Training, model: int) -> tuple[list[int], float]:
    """The pattern that starts with 0 from which to count differing prefix tokens, and what this explains of their mean ξ."""
    means = training.models[model].double().sequences(TASK.all()[0])[0].unflatten(0, (2**PREFIX, -1)).mean(1)
    prefixes, found = Task(2, PREFIX, PREFIX).all()[0], []
    for pattern in prefixes[: len(prefixes) // 2]:
        count = (prefixes != pattern).sum(1)
        centres = torch.stack([means[count == number].mean(0) for number in range(PREFIX + 1)])
        share = 1 - (means - centres[count]).square().sum() / (means - means.mean(0)).square().sum()
        found.append((share.item(), pattern.tolist()))
    share, pattern = max(found)
    return pattern, share


def chosen_epochs(losses: Tensor) -> np.ndarray:
    """Epochs for frames: denser where the loss changes, every one about its largest jump, the first and the last."""
    logarithms = losses.double().clamp(min=1e-6).log()
    change = logarithms.diff().abs()
    smooth = torch.nn.functional.avg_pool1d(change[None, None], 5, 1, 2, count_include_pad=False)[0, 0]
    density = smooth / smooth.sum() + 0.7 / len(smooth)
    along = torch.cat([density.new_zeros(1), density.cumsum(0)])
    for points in range(FRAMES, 10 * FRAMES):  # some fall together
        wanted = torch.linspace(0, along[-1].item(), points, dtype=along.dtype)
        epochs = torch.searchsorted(along, wanted).clamp(max=len(change)).unique()
        if len(epochs) >= FRAMES:
            break
    jump = int(losses.diff().argmax()) + 1
    around = torch.arange(max(0, jump - 6), min(len(change), jump + 12) + 1)
    return torch.cat([epochs, around, torch.tensor([0, len(change)])]).unique().numpy()


def frame_of(training: Training, model: int, epoch: int) -> Models:
    """One model after an epoch, as an ensemble of one in float64."""
    return training.snapshots[epoch][model].double()


def recorded(name: str, title: str, description: str, training: Training, model: int, seed: int, task: Task = TASK) -> Run:
    """One model of a training with snapshots of every epoch, as a run."""
    history = {key: values[:, model] for key, values in training.history.items() if key != "epoch"}
    epochs = chosen_epochs(history["loss"])
    points = np.union1d(epochs, np.arange(0, len(history["loss"]), THINNED))
    frames = [frame_of(training, model, epoch) for epoch in epochs]
    shares = [variance_shares(frame.sequences(task.all()[0]), task) for frame in frames]
    norms = {
        layer: torch.stack([history[f"gradient_{part}"] for part in (layer, WITH_BIAS.get(layer)) if part]).norm(dim=0)
        for layer in LAYERS
    }
    return Run(
        name=name,
        title=title,
        description=description,
        task=task,
        norm=training.models.norm,
        settings=SETTINGS | {"seed": seed},
        epochs=epochs,
        packed=pack(Models.join(frames).weights),
        frames={key: torch.cat([share[key] for share in shares]).numpy().round(4) for key in ("suffix", "permutation")},
        history={"epoch": points}
        | {ours: np.array(rounded(history[theirs][points], 4 if ours != "loss" else 3)) for ours, theirs in HISTORY.items()}
        | {layer: np.array(rounded(values[points], 3)) for layer, values in norms.items()},
    )


def described(training: Training, spurious: Tensor, kinds: dict[str, int]) -> dict[str, tuple[str, str]]:
    """Title and sentence of each kind."""
    history = training.history
    at = lambda name, kind: history[name][-1, kinds[kind]].item()  # noqa: E731
    jump = int(history["loss"][:, kinds["spike"]].diff().argmax()) + 1
    pattern, explained = best_pattern(training, kinds["pattern"])
    spelled = "".join(str(token) for token in pattern)
    before, top = history["loss"][jump - 1 : jump + 1, kinds["spike"]].tolist()
    share = lambda kind: f"{100 * spurious[kinds[kind]].item():.0f} %"  # noqa: E731
    return {
        "success": (
            "success",
            f"From epoch {reached(training)[kinds['success']]} on nearly all answers are right: there are six clusters, one "
            "for each number of ones in the prefix.",
        ),
        "failure": (
            "failure",
            f"After {EPOCHS} epochs {100 * at('accuracy_all', 'failure'):.0f} % are right, as by guessing.",
        ),
        "spike": (
            "loss spike",
            f"The loss has fallen to {before:.1g} when at epoch {jump}, in one epoch, it rises to {top:.2g}; it recovers.",
        ),
        "faulty_attention": (
            "faulty attention",
            f"{share('faulty_attention')} of the attention goes to spurious tokens, but the value matrix sends them where "
            "they make no difference.",
        ),
        "partial_invariance": (
            "partial invariance",
            f"All answers are right, although the suffix still moves the sequence embeddings: suffix invariance is "
            f"{at('suffix', 'partial_invariance'):.2f}.",
        ),
        "pattern": (
            "pattern",
            f"All answers are right, but the model does not count ones: it counts where the prefix differs from {spelled}, "
            f"which explains {100 * explained:.1f} % of the variance between prefixes.",
        ),
    }


def main() -> None:
    """Choose, train again, write."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    trained = record("main")
    spurious = spurious_share(trained.models)
    kinds = choose(trained, spurious)
    told = described(trained, spurious, kinds)
    seeds = sorted(set(kinds.values()))
    watch = Watch(snapshots=range(EPOCHS + 1))
    again = train(seeds, watch=watch, checkpoint=CACHE / "sandbox.npz", progress=True)
    assert torch.equal(again.history["loss"], trained.history["loss"][:, seeds])
    runs = [recorded(kind, *told[kind], again, seeds.index(seed), seed) for kind, seed in kinds.items()]

    before, after = record("vocabulary_10"), record("tuned_p3")
    accuracy, loss = after.history["accuracy_all"][-1], after.history["loss"][-1]
    seed = median(accuracy >= 0.98, loss)
    start = before.models[seed]
    start = start.replace(token=start.weights["token"][:, :3])
    file = CACHE / "sandbox_p3.npz"
    tuned = train([seed], Settings(Task(3)), watch, start=start, checkpoint=file, progress=True)
    assert tuned.history["loss"][-1, 0] == loss[seed]
    solved = 100 * before.history["accuracy_all"][-1, seed]
    text = (
        f"Trained on sequences of zeros and ones, {solved:.0f} % of them right, the model goes on with p = 3. The token "
        f"2 had an embedding before, but no sequence contained it. At the end {100 * accuracy[seed]:.1f} % are right."
    )
    runs.append(recorded("fine_tuning", "fine-tuning", text, tuned, 0, seed, Task(3)))
    for run in runs:
        print(f"{run.name:20} seed {run.settings['seed']:3}, {len(run.epochs)} frames: {run.description}")
    save_runs(DATA, runs, provenance("python experiments/sandbox_runs.py", time.perf_counter() - began))


if __name__ == "__main__":
    guarded(main)
