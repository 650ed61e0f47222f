"""The recorded runs of the visual sandbox: typical ones out of 200, and one that goes on from p = 2 to p = 3.

    python experiments/sandbox_runs.py
    python experiments/sandbox_runs.py tell

The second only reads the recorded frames again and describes the runs anew.
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

import dataclasses
import json
import sys
import time

import numpy as np
import torch
from ensembles import CACHE, record
from lab import guarded, provenance, rounded
from torch import Tensor

from attnopt.clustering import Models, Run, Settings, Task, Training, Watch, train
from attnopt.clustering.invariance import variance_shares
from attnopt.clustering.sandbox import DATA, LAYERS, RECORDED, WITH_BIAS, load_run, pack, read_frames, run_names, save_runs

FRAMES, THINNED = 120, 5  # frames a run, about; epochs from one point of the history to the next
TASK, EPOCHS = Task(), 1000
PREFIX = TASK.k
TITLES = {
    "success": "success",
    "failure": "failure",
    "spike": "loss spike",
    "faulty_attention": "faulty attention",
    "partial_invariance": "partial invariance",
    "pattern": "pattern",
    "fine_tuning": "fine-tuning",
}
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


def recorded(name: str, training: Training, model: int, seed: int, task: Task = TASK) -> Run:
    """One model of a training with snapshots of every epoch, as a run."""
    history = {key: values[:, model] for key, values in training.history.items() if key != "epoch"}
    epochs = chosen_epochs(history["loss"])
    points = np.union1d(epochs, np.arange(0, len(history["loss"]), THINNED))
    frames = [frame_of(training, model, epoch) for epoch in epochs]
    norms = {
        layer: torch.stack([history[f"gradient_{part}"] for part in (layer, WITH_BIAS.get(layer)) if part]).norm(dim=0)
        for layer in LAYERS
    }
    shares = [variance_shares(frame.sequences(task.all()[0]), task) for frame in frames]
    invariances = {key: torch.cat([share[key] for share in shares]).numpy().round(4) for key in shares[0]}
    run = Run(
        name=name,
        title=TITLES[name],
        description="",
        task=task,
        norm=training.models.norm,
        settings=SETTINGS | {"seed": seed},
        epochs=epochs,
        packed=pack(Models.join(frames).weights),
        frames=invariances | read_frames(Models.join(frames), task),
        history={"epoch": points}
        | {ours: np.array(rounded(history[theirs][points], 4 if ours != "loss" else 3)) for ours, theirs in RECORDED.items()}
        | {layer: np.array(rounded(values[points], 3)) for layer, values in norms.items()},
    )
    return dataclasses.replace(run, description=described(run))


def described(run: Run) -> str:
    """What a chooser says of a run, from what it recorded."""
    history, frames, seed = run.history, run.frames, run.settings["seed"]
    if run.name == "fine_tuning":
        return (
            f"Seed {seed}. After training on zeros and ones, the model continues with p = 3: token 2 had an embedding "
            f"before, but no sequence contained it. At the end, {percent(history['all'][-1])} of all answers are right."
        )
    m, explained = frames["m"][-1].astype(int), frames["explained"][-1]
    spelled = f"{spell(m[:PREFIX])} | {spell(m[PREFIX:])}"
    low = history["epoch"][history["all"] < 0.98]
    first = history["epoch"][(history["all"] >= 0.98).argmax()]
    jump = int(np.diff(history["loss"]).argmax())
    told = {
        "success": (
            f"At epoch {first}, at least 98% of all answers are right for the first time. The share then falls below 98% "
            f"again; {low[-1]} is the last recorded epoch below it."
        ),
        "failure": (
            f"After {EPOCHS} epochs, {percent(history['all'][-1], 0)} of all answers are right, no better than guessing."
        ),
        "spike": (
            f"The loss falls to {power(history['loss'][jump])}, jumps to {history['loss'][jump + 1]:.2g} during epoch "
            f"{history['epoch'][jump + 1]}, and then recovers."
        ),
        "faulty_attention": (
            f"{percent(spurious_share(run.models[[-1]]).item(), 0)} of the attention goes to the suffix, where 0 and 1 "
            "contribute nearly the same, so the suffix does not count."
        ),
        "partial_invariance": (
            f"All answers are right at the end, although the suffix moves ξ (suffix invariance {frames['suffix'][-1]:.2f}): "
            "two of its positions count minus two."
        ),
        "pattern": (
            f"All answers are right at the end, although ξ depends on the order of the prefix (permutation invariance "
            f"{frames['permutation'][-1]:.2f}): m has both signs."
        ),
    }[run.name]
    count = f"m = {spelled} explains {percent(explained)} of the variance of ξ." if abs(m).max() < 10 else "No small m fits."
    return f"Seed {seed}. {told} {count}"


def percent(share: float, digits: int = 1) -> str:
    """A share in percent."""
    return f"{100 * share:.{digits}f}%"


def power(value: float) -> str:
    """A small number as a digit times a power of ten."""
    digit, exponent = f"{value:.0e}".split("e")
    return f"{digit} × 10{str(int(exponent)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def spell(numbers: np.ndarray) -> str:
    """Integers with spaces between."""
    return " ".join(str(number).replace("-", "−") for number in numbers)


def tell_again() -> None:
    """Read the frames of the runs and describe them anew, without training."""
    with np.load(DATA, allow_pickle=False) as arrays:
        said = json.loads(str(arrays["about"]))["provenance"]
    runs = [load_run(name) for name in run_names()]
    runs = [dataclasses.replace(run, frames=run.frames | read_frames(run.models, run.task)) for run in runs]
    save_runs(DATA, [dataclasses.replace(run, title=TITLES[run.name], description=described(run)) for run in runs], said)
    for run in runs:
        print(run.name, described(run), sep=": ")


def main() -> None:
    """Choose, train again, write."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    trained = record("main")
    spurious = spurious_share(trained.models)
    kinds = choose(trained, spurious)
    seeds = sorted(set(kinds.values()))
    watch = Watch(every=1, snapshots=range(EPOCHS + 1))
    again = train(seeds, watch=watch, checkpoint=CACHE / "sandbox.npz", progress=True, compiled=False)
    assert torch.equal(again.history["loss"], trained.history["loss"][:, seeds])
    runs = [recorded(kind, again, seeds.index(seed), seed) for kind, seed in kinds.items()]

    before, after = record("vocabulary_10"), record("tuned_p3")
    accuracy, loss = after.history["accuracy_all"][-1], after.history["loss"][-1]
    seed = median(accuracy >= 0.98, loss)
    start = before.models[seed]
    start = start.replace(token=start.weights["token"][:, :3])
    file = CACHE / "sandbox_p3.npz"
    tuned = train([seed], Settings(Task(3)), watch, start=start, checkpoint=file, progress=True, compiled=False)
    assert tuned.history["loss"][-1, 0] == loss[seed]
    runs.append(recorded("fine_tuning", tuned, 0, seed, Task(3)))
    for run in runs:
        print(f"{run.name:20} seed {run.settings['seed']:3}, {len(run.epochs)} frames: {run.description}")
    save_runs(DATA, runs, provenance("python experiments/sandbox_runs.py", time.perf_counter() - began))


if __name__ == "__main__":
    guarded(tell_again if sys.argv[1:] == ["tell"] else main)
