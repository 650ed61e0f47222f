"""Training many models side by side: one call for an ensemble or a grid of settings."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

from attnopt.checks import check_count, check_device, check_entries
from attnopt.clustering.model import Models
from attnopt.clustering.training.backward import SPREAD, too_far
from attnopt.clustering.training.draws import check_seeds, initial_models
from attnopt.clustering.training.group import Group
from attnopt.clustering.training.record import Training, join
from attnopt.clustering.training.settings import EACH_EPOCH, PAPER, PER_MODEL, Settings, Watch


def train(
    seeds: Sequence[int],
    settings: Settings = PAPER,
    watch: Watch = EACH_EPOCH,
    *,
    start: Models | None = None,
    checkpoint: Path | str | None = None,
    checkpoint_every: int = 100,
    progress: bool = False,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    compiled: bool = False,
) -> Training:
    """Train one model a seed, all at once, with Adam on shuffled mini-batches.

    A model's initial weights and data follow from its seed alone; the order of the mini-batches is drawn anew each epoch,
    the same for all models, whose data are independent. Who else is in the ensemble does not change a model's numbers: not
    a bit of them at the paper's sizes, on the processors tried; at other sizes, and beside wider models, products are
    rounded by the shapes of matrices and by how they happen to be aligned in memory. One thread of the CPU is used;
    `ensemble` uses all cores. A model takes less than 1 MB of memory at the defaults.

    A model diverges if its attention scores come to lie more than 80 apart, where single precision loses the smaller ones,
    or a number is no longer finite. It keeps the weights of the last epoch that it completed, its later history is nan,
    ``stopped`` says when and why, and a warning names its seed and settings. The others go on.

    Args:
        seeds: M of them.
        settings: what is learned, by which models, and how.
        watch: what is recorded.
        start: models to go on from, with a fresh Adam, instead of new ones; they must be of the settings' sizes and norm.
        checkpoint: start of the names of files, one a batch size, written now and then, from which the same call,
            interrupted, goes on to the same numbers.
        checkpoint_every: epochs between writings.
        progress: show a progress bar on stderr.
        device: where to compute. No GPU has been tried; the tests pretend a device and find nothing left behind on the CPU.
        dtype: of the weights.
        compiled: take the steps in C, which a C compiler of this machine translates within a second or two: several times as
            fast, above all for few models, in float32 on the CPU. The numbers are those of the plain steps but for rounding,
            and training magnifies rounding: most models soon differ visibly from those trained without. They are the same
            each time on one machine, not on another.

    Returns:
        What `Training` says, on the CPU.

    Raises:
        TypeError: if an argument is not of its kind.
        ValueError: if a number is out of range, a setting has neither one nor M values, ``start`` does not fit, is not
            finite or has scores more than 80 apart, the device is not there, or the checkpoint cannot be read or belongs
            to other settings.
        RuntimeError: if ``compiled`` is asked for and there is no C compiler, or it fails.

    Warns:
        RuntimeWarning: if models diverged.

    Source: Odonnat, Bouaziz, Cabannes (2025), Appendix A.
    """
    how = {"start": start, "checkpoint": checkpoint, "checkpoint_every": checkpoint_every, "progress": progress}
    training = train_quietly(seeds, settings, watch, **how, device=device, dtype=dtype, compiled=compiled)
    warn_of_stopped(training, seeds, settings)
    return training


def train_quietly(
    seeds: Sequence[int], settings: Settings, watch: Watch, *, start: Models | None, checkpoint: Path | str | None,
    checkpoint_every: int, progress: bool, device: torch.device | str = "cpu", dtype: torch.dtype, compiled: bool,
) -> Training:  # fmt: skip
    """What `train` does, without its warning."""
    seeds = check_seeds(seeds)
    check_plan(settings, watch)
    settings = settings.each(len(seeds))
    checkpoint_every = check_count("checkpoint_every", checkpoint_every)
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype}")
    check_compiled(compiled, device, dtype)
    check_device("device", device)
    start = initial_models(seeds, settings, dtype) if start is None else start
    check_start(start, settings, len(seeds))
    start = start.map(lambda value: value.detach().to(device, dtype))
    check_start(start, settings, len(seeds))  # in another precision numbers may no longer be finite
    parts, order = [], []
    for size in sorted(set(settings.batch_size)):  # models that share a batch size step together
        members = [at for at, other in enumerate(settings.batch_size) if other == size]
        group = Group([seeds[at] for at in members], settings.of(members), watch, start[members], compiled)
        file = Path(f"{checkpoint}.{size}.npz") if checkpoint else None
        parts.append(group.run(file, checkpoint_every, progress))
        order += members
    return join(parts, torch.tensor(order).argsort())


def warn_of_stopped(training: Training, seeds: Sequence[int], settings: Settings) -> None:
    """Warn of the models that diverged, by the line that called who calls this."""
    if not training.stopped:
        return
    settings, told = settings.each(len(seeds)), []
    for model, stop in training.stopped.items():
        own = ", ".join(f"{name} {getattr(settings, name)[model]:g}" for name in PER_MODEL)
        told.append(f"seed {seeds[model]} ({own}) after epoch {stop.epoch}: {stop.reason}")
    warnings.warn(
        f"{len(told)} of {len(seeds)} models diverged and stopped; a smaller learning_rate may help. Each keeps the weights "
        "of the last epoch that it completed, and its later history is nan:\n" + "\n".join(told),
        RuntimeWarning,
        stacklevel=3,
    )


def check_plan(settings: Settings, watch: Watch) -> None:
    """Require settings and what to record of them, up to their last epoch.

    Raises:
        TypeError: if one of them is none.
        ValueError: if a snapshot is due after the last epoch.
    """
    for name, value, kind in (("settings", settings, Settings), ("watch", watch, Watch)):
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be {kind.__name__}(…), got {value!r}")
    if watch.snapshots and watch.snapshots[-1] > settings.epochs:
        raise ValueError(f"snapshots must be epochs from 0 to {settings.epochs}, got {watch.snapshots[-1]}")


def check_compiled(compiled: bool, device: torch.device | str, dtype: torch.dtype) -> None:
    """Require that compiled steps are asked for only where there are some.

    Raises:
        TypeError: if ``compiled`` is neither True nor False.
        ValueError: if they are asked for elsewhere than on the CPU, or in another precision than float32.
    """
    if not isinstance(compiled, bool):
        raise TypeError(f"compiled must be True or False, got {compiled!r}")
    if compiled and (str(device).partition(":")[0] != "cpu" or dtype != torch.float32):
        raise ValueError(f"compiled must be False but on the CPU in torch.float32, got {device} and {dtype}")


def check_start(start: Models, settings: Settings, models: int) -> None:
    """Require models with biases, one a seed, that can be evaluated, of the sizes and the norm that the settings say.

    Raises:
        TypeError: if they are no `Models`.
        ValueError: if they are others.
    """
    if not isinstance(start, Models):
        raise TypeError(f"start must be Models, as in training.models, got {type(start).__name__}")
    if not {"receptor_biases", "assembler_bias"} <= start.weights.keys():
        raise ValueError(f"start must have both biases, got {start}")
    said = [models, settings.tokens, settings.task.length, settings.dim, max(settings.width), settings.norm]
    found = [len(start), start.vocabulary, start.length, start.dim, start.width, start.norm]
    names = ("number of models", "vocabulary", "length", "dim", "width", "norm")
    for name, ours, theirs in zip(names, said, found, strict=True):
        if ours != theirs:
            raise ValueError(f"start must be as settings say: {name} {ours!r}, got {theirs!r}")
    for name, value in start.weights.items():
        check_entries(f"{name} of start", value)
    scores = start.scores().flatten(1)
    spread = scores.amax(1) - scores.amin(1)
    if (spread > SPREAD).any():
        raise too_far(int(spread.argmax()), spread.max().item())
