"""Training many models at once: one call for an ensemble or a grid of settings, together or in chunks on all cores."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
from joblib import Parallel, delayed
from torch import Tensor
from tqdm import tqdm

from attnopt.checks import check_count, check_device, check_entries, check_flag, is_truth
from attnopt.clustering.model import Models
from attnopt.clustering.training.backward import SPREAD, Layout, too_far
from attnopt.clustering.training.compiled import Kernel, library, too_large
from attnopt.clustering.training.draws import check_seeds, initial_models, training_data
from attnopt.clustering.training.laboratory import Orders
from attnopt.clustering.training.record import (
    ASKED,
    Record,
    Start,
    Training,
    TrainingState,
    describe,
    join,
    load_training,
    save_training,
)
from attnopt.clustering.training.settings import PAPER, PER_MODEL, USUAL, Grid, Settings, Watch
from attnopt.clustering.training.step import Pace, Plain, State

Each = Callable[[int, Models, dict[str, Tensor]], bool | None]


def train(
    seeds: Sequence[int],
    settings: Settings = PAPER,
    watch: Watch = USUAL,
    *,
    each: Each | None = None,
    start: Start = None,
    checkpoint: Path | str | None = None,
    checkpoint_every: int = 100,
    progress: bool = False,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    compiled: bool | None = None,
) -> Training:
    """Train one model per seed, all at once, with Adam on shuffled mini-batches.

    A model's initial weights and data depend only on its seed; the order of the mini-batches is drawn for each epoch and,
    unless ``draws="laboratory"``, shared by all models, whose data are independent. At the paper's sizes, on the processors
    tried, the other models in the ensemble do not change a model's numbers by a single bit. Steps are compiled C or plain
    PyTorch (see ``compiled``). In plain steps at other sizes, or in an ensemble with wider models, the rounding of products
    depends on the shapes of the matrices and on their alignment in memory. Compiled steps use as many threads as PyTorch
    does (`torch.get_num_threads`), which changes no number; plain steps use one, and `ensemble` uses all cores. A model
    takes less than 1 MB of memory at the defaults.

    A model counts as diverged if two of its attention scores differ by more than 80, beyond which float32 loses the smaller
    one, or if a number is no longer finite. It keeps the weights of the last epoch that it completed, its later history is
    nan, ``stopped`` holds that epoch and the reason, and a warning names its seed and settings. The other models continue.

    Args:
        seeds: seeds of the M models.
        settings: the task, the models' sizes, and how they are trained.
        watch: what to record.
        each: a function that is called at each evaluation, which ``watch`` schedules, with the epoch and copies of the
            models and the history so far. If it returns True, training stops there; otherwise it must return False or None.
            No function can be given if models have different batch sizes, which are trained one size after another.
        start: models to continue from, with Adam reset, instead of new ones; or one of a training's ``states``, from whose
            epoch training continues with Adam's stored moments. The original seeds and settings continue the original run
            to the last bit; other settings start a branch of it. The seeds then determine only the training data and, with
            ``draws="laboratory"``, the order of the mini-batches; other seeds give the models other data. The history
            begins after the state's epoch. Models must have the settings' sizes and norm.
        checkpoint: prefix of the names of checkpoint files, one per batch size. If the call is interrupted, repeating it
            resumes from them and gives the same numbers.
        checkpoint_every: epochs between checkpoints.
        progress: whether to show a progress bar on stderr.
        device: device to compute on. On a CUDA device, an epoch is replayed as one graph. From a few hundred models on, an
            H200 is faster than compiled steps on the CPU; no other GPU has been tried.
        dtype: dtype of the weights.
        compiled: whether to take the steps in C, which this machine's compiler compiles within a second or two; by default,
            whenever possible, that is, on the CPU, in float32, with a compiler. Compiled steps are several times as fast as
            plain ones, above all with few models. The numbers are those of the plain steps up to rounding, but training
            magnifies rounding errors, so most models soon differ visibly. Compiled steps repeat to the last bit on one
            machine but not on another; ``compiled=False`` gives numbers that do not depend on a compiler.

    Returns:
        A `Training`, with its tensors on the CPU.

    Raises:
        ValueError: if two scores of a model in ``start`` differ by more than 80, or the checkpoint cannot be read or has
            other settings.
        RuntimeError: if ``compiled`` is True and there is no C compiler, or compilation fails.

    Warns:
        RuntimeWarning: if models diverged; and once, if ``compiled`` is not given and there is no working C compiler.

    Source: Odonnat, Bouaziz, Cabannes (2025), Appendix A.
    """
    seeds, grid, compiled = checked(seeds, settings, watch, start, device, dtype, compiled, progress)
    if each is not None and not callable(each):
        raise TypeError(f"each must be None or a function, got {each!r}")
    if each is not None and len(set(grid.batch_size)) > 1:
        sizes = ", ".join(map(str, sorted(set(grid.batch_size))))
        raise ValueError(f"each must be None unless all models have the same batch_size, got sizes {sizes}")
    how = {"every": check_count("checkpoint_every", checkpoint_every), "progress": progress, "compiled": compiled}
    training = train_quietly(seeds, grid, watch, start, checkpoint, each=each, device=device, dtype=dtype, **how)
    warn_of_stopped(training, seeds, grid)
    return training


def train_quietly(
    seeds: list[int], settings: Grid, watch: Watch, start: Start, checkpoint: Path | str | None, *, every: int,
    progress: bool, device: torch.device | str = "cpu", dtype: torch.dtype, compiled: bool, each: Each | None = None,
) -> Training:  # fmt: skip
    """Do what `train` does, for checked arguments and without its warning; models that share a batch size step together."""
    start = initial_models(seeds, settings, dtype) if start is None else start
    start = fitting(start, settings, device, dtype)
    parts, order = [], []
    with one_thread() as threads:
        for size in sorted(set(settings.batch_size)):
            members = [at for at, other in enumerate(settings.batch_size) if other == size]
            file = Path(f"{checkpoint}.{size}.npz") if checkpoint else None
            group = [seeds[at] for at in members], settings.of(members), watch, start[members], compiled, threads
            parts.append(train_together(*group, each, file=file, every=every, progress=progress))
            order += members
    return join(parts, torch.tensor(order).argsort())


@contextmanager
def one_thread() -> Iterator[int]:
    """Let PyTorch compute on one CPU thread, and yield the number of threads that it used before.

    Several threads divide an array at points that depend on its length, which changes the rounding.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield threads
    finally:
        torch.set_num_threads(threads)


def train_together(
    seeds: list[int], settings: Grid, watch: Watch, start: Models | TrainingState, compiled: bool, threads: int,
    each: Each | None, *, file: Path | None, every: int, progress: bool,
) -> Training:  # fmt: skip
    """Train models of one batch size to the end, or until ``each`` stops them, from the checkpoint if there is one."""
    engine, state, pace, record = begin(seeds, settings, watch, start, compiled, threads)
    if file and file.exists():
        record.restore(file, state)
    elif not isinstance(start, TrainingState):
        record.keep(state)
    with tqdm(total=settings.epochs, initial=record.epoch, disable=not progress, unit="epoch") as bar:
        while not (each and stops(each, record, state.rows)) and record.epoch < settings.epochs:
            advance(engine, state, pace, record)
            record.keep(state)
            bar.update()
            bar.set_postfix_str(f"{len(seeds) * (bar.format_dict['rate'] or 0):.0f} models·epochs/s", refresh=False)
            if file and (record.epoch % every == 0 or record.epoch == settings.epochs):
                record.save(file, state)
    return record.training(state.rows)


def stops(each: Each, record: Record, rows: Tensor) -> bool:
    """Whether the models were just evaluated and ``each`` returns True for the results so far."""
    if not record.history or record.history[-1]["epoch"] != record.epoch:
        return False
    said = each(record.epoch, record.models_of(rows), record.so_far())
    if said is not None and not (is_truth(said) and getattr(said, "ndim", 0) == 0):
        raise TypeError(f"each must return True, False, or None, got {said!r}")
    return bool(said)


def begin(
    seeds: list[int], settings: Grid, watch: Watch, start: Models | TrainingState, compiled: bool, threads: int = 1
) -> tuple[Plain | Kernel, State, Pace, Record]:
    """The engine, state, hyperparameters, and record of a training."""
    # Copies of the last model pad every array to a multiple of 32 numbers and to at least two models: a remainder and a
    # single matrix are rounded differently, so a model's numbers would depend on the other models. Compiled code needs no
    # padding, because it takes one model after another.
    models, multiple = len(seeds), 32 // math.gcd(32, settings.batch_size[0], settings.n_train)
    members = [*range(models), *[models - 1] * (0 if compiled else -models % max(2, multiple))]
    first = (start if isinstance(start, Models) else start.models)[members]
    layout = Layout.of(first.weights)
    state = State.of(layout.rows(first.weights))
    rows = state.rows
    what = seeds, settings.task, settings.n_train, settings.draws
    tokens, targets = (part[members].to(rows.device) for part in training_data(*what))
    data = layout, first.norm, tokens, targets
    engine = Kernel(*data, threads) if compiled else Plain(*data, rows.dtype)
    description = describe(seeds, settings, watch, start[members], rows.dtype, compiled)
    record = Record(engine, settings, watch, tokens, targets, models, description)
    if settings.draws == "laboratory":
        record.order_of = Orders([seeds[member] for member in members], record.count)
    if isinstance(start, TrainingState):
        record.resume(state, members, start)
    return engine, state, Pace.of(settings.of(members), layout, rows), record


def advance(engine: Plain | Kernel, state: State, pace: Pace, record: Record) -> None:
    """Train for one epoch; models that can no longer be evaluated after it are put back to before it and stop."""
    before, spread = state.rows.clone(), torch.zeros_like(record.spread)
    order = record.order_of(record.epoch)
    engine.epoch(state, order, pace, record.squares, spread)
    losses, _, _ = engine.predict(state.rows, record.probe, spread)
    sound = (spread <= SPREAD) & losses.isfinite().all(1)  # a spread that is nan fails
    for value in (state.rows, state.first, state.second):
        sound &= value.isfinite().all(1)
    still = record.passed(-(-record.count // pace.size), sound, spread).unsqueeze(1)
    state.rows.copy_(torch.where(still, before, state.rows))
    state.first.masked_fill_(still, 0.0)
    state.second.masked_fill_(still, 0.0)


def ensemble(
    seeds: Sequence[int],
    settings: Settings = PAPER,
    folder: Path | str | None = None,
    *,
    watch: Watch = USUAL,
    start: Start = None,
    chunk: int = 50,
    jobs: int = -1,
    checkpoint_every: int = 100,
    progress: bool = False,
    dtype: torch.dtype = torch.float32,
    compiled: bool | None = None,
) -> Training:
    """Train one model per seed, in chunks on all cores; a chunk that was finished before is read, not trained again.

    Only `train` takes ``each``, because it could stop one chunk and not another.

    Args:
        seeds: seeds of the M models.
        settings: settings, as for `train`.
        folder: folder for finished chunks and for the checkpoints of running ones; by default, nothing is saved. Chunks with
            other settings, or of a task with other labels, are rejected.
        watch: what to record.
        start: models or a state to continue from, as for `train`.
        chunk: number of models per chunk; if there are fewer chunks than cores, some cores are idle.
        jobs: number of chunks at a time, joblib's ``n_jobs``; joblib's ``parallel_config`` can move them to a cluster.
        checkpoint_every: epochs between checkpoints.
        progress: whether to show progress bars on stderr.
        dtype: dtype of the weights.
        compiled: whether to take the steps in C, as for `train`.

    Returns:
        A `Training`; its numbers depend on ``chunk`` and ``jobs`` only as `train` describes for the other
        models in an ensemble.

    Raises:
        ValueError: as for `train`, or if the folder holds chunks that cannot be read or were written with other settings.
        RuntimeError: as for `train`.

    Warns:
        RuntimeWarning: as for `train`, also for models in chunks that are read.
    """
    seeds, grid, compiled = checked(seeds, settings, watch, start, "cpu", dtype, compiled, progress)
    if start is not None:
        fitting(start, grid, "cpu", dtype)  # before the first task begins
    check_count("chunk", chunk)
    how = {"every": check_count("checkpoint_every", checkpoint_every), "progress": progress, "compiled": compiled}
    tasks = []
    for at in range(0, len(seeds), chunk):
        part = range(at, min(at + chunk, len(seeds)))
        file = Path(folder) / f"chunk_{at:05d}.npz" if folder else None
        first = None if start is None else start[list(part)]
        tasks.append(delayed(_chunk)(seeds[at : at + chunk], grid.of(part), watch, first, file, dtype=dtype, **how))
    training = join(Parallel(n_jobs=jobs)(tasks))
    warn_of_stopped(training, seeds, grid)
    return training


def _chunk(
    seeds: list[int], settings: Grid, watch: Watch, start: Start, file: Path | None, *, dtype: torch.dtype,
    compiled: bool, every: int, progress: bool,
) -> Training:  # fmt: skip
    """Read the result of one chunk, or train and save it."""
    how = {"dtype": dtype, "compiled": compiled, "every": every, "progress": progress}
    if file is None:
        return train_quietly(seeds, settings, watch, start, None, **how)
    description = describe(seeds, settings, watch, start, dtype, compiled)
    if file.exists():
        return load_training(file, description)
    checkpoint = file.with_suffix(".checkpoint")
    training = train_quietly(seeds, settings, watch, start, checkpoint, **how)
    save_training(file, training, description)
    for left in file.parent.glob(f"{checkpoint.name}.*"):
        left.unlink()
    return training


def warn_of_stopped(training: Training, seeds: Sequence[int], settings: Grid) -> None:
    """Warn of the models that diverged; the warning names the line that called this function's caller."""
    diverged = {model: stop for model, stop in training.stopped.items() if stop.reason != ASKED}
    if not diverged:
        return
    told = []
    for model, stop in diverged.items():
        own = ", ".join(f"{name} {getattr(settings, name)[model]:g}" for name in PER_MODEL)
        told.append(f"seed {seeds[model]} ({own}) after epoch {stop.epoch}: {stop.reason}")
    warnings.warn(
        f"{len(told)} of {len(seeds)} models diverged and stopped; a smaller learning_rate may help. Each keeps the weights "
        "of the last epoch that it completed, and its later history is nan:\n" + "\n".join(told),
        RuntimeWarning,
        stacklevel=3,
    )


def checked(
    seeds: Sequence[int], settings: Settings, watch: Watch, start: Start, device: torch.device | str, dtype: torch.dtype,
    compiled: bool | None, progress: bool,
) -> tuple[list[int], Grid, bool]:  # fmt: skip
    """Check a training's arguments; return the seeds as a list, settings per model, and whether steps are compiled."""
    seeds = check_seeds(seeds)
    for name, value, kind in (("settings", settings, Settings), ("watch", watch, Watch)):
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be {kind.__name__}(…), got {value!r}")
    first = 0
    if isinstance(start, TrainingState):
        first = start.epoch + 1
        if first > settings.epochs:
            raise ValueError(f"start must be of an epoch before the last, {settings.epochs}, got epoch {start.epoch}")
    for epoch in watch.snapshots:
        if not first <= epoch <= settings.epochs:
            raise ValueError(f"snapshots must be epochs from {first} to {settings.epochs}, got {epoch}")
    grid = settings.each(len(seeds))
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype}")
    check_flag("progress", progress)
    possible = str(device).partition(":")[0] == "cpu" and dtype == torch.float32
    if compiled is not None:
        check_flag("compiled", compiled)
    if compiled and not possible:
        raise ValueError(f"compiled must be False except on the CPU in torch.float32, got {device} and {dtype}")
    check_device("device", device)
    return seeds, grid, possible and compilable(grid) if compiled is None else compiled


def compilable(settings: Grid) -> bool:
    """Whether steps can be compiled for models of these settings; if no compiler works, warn once."""
    sizes = settings.tokens, settings.task.length, settings.dim, max(settings.width)
    if too_large(*sizes):
        return False
    try:
        library(*sizes, settings.norm)
    except RuntimeError as error:
        warn_of_plain_steps(str(error))
        return False
    return True


@cache
def warn_of_plain_steps(reason: str) -> None:
    """Warn once that training is slow, and why."""
    warnings.warn(f"steps are taken in PyTorch, several times slower than in C: {reason}", RuntimeWarning, stacklevel=5)


def fitting(start: Start, settings: Grid, device: torch.device | str, dtype: torch.dtype) -> Models | TrainingState:
    """The start of a training, moved to a device and dtype; it must fit the settings, and scores must not differ too much.

    Args:
        start: models with biases, one per seed, or a state of such models.
        settings: settings with one value per model.
        device: device of the returned models.
        dtype: dtype of their weights.
    """
    if isinstance(start, TrainingState):
        return replace(start, models=_fitting(start.models, settings, device, dtype))
    if not isinstance(start, Models):
        raise TypeError(f"start must be Models or a TrainingState, as a training has them, got {type(start).__name__}")
    return _fitting(start, settings, device, dtype)


def _fitting(start: Models, settings: Grid, device: torch.device | str, dtype: torch.dtype) -> Models:
    """Do what `fitting` does, for models."""
    start = start.map(lambda value: value.detach().to(device, dtype))
    if not {"receptor_biases", "assembler_bias"} <= start.weights.keys():
        raise ValueError(f"start must have both biases, got {start}")
    said = [len(settings.width), settings.tokens, settings.task.length, settings.dim, max(settings.width), settings.norm]
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
    return start
