"""Training many models side by side: one call for an ensemble or a grid of settings, on one core or in chunks on all."""

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

    A model's initial weights and data follow from its seed alone; the order of the mini-batches is drawn again each epoch,
    the same for all models, whose data are independent. The other models in the ensemble do not change a model's numbers,
    not by a bit, at the paper's sizes, on the processors tried; in plain steps at other sizes, and beside wider models,
    products are rounded by the shapes of matrices and by how they happen to be aligned in memory. Compiled steps use as many
    threads as PyTorch does (`torch.get_num_threads`), which changes no number; plain ones use one, and `ensemble` all cores.
    A model takes less than 1 MB of memory at the defaults.

    A model diverges if its attention scores come to lie more than 80 apart, where single precision loses the smaller ones,
    or a number is no longer finite. It keeps the weights of the last epoch that it completed, its later history is nan,
    ``stopped`` says when and why, and a warning names its seed and settings. The others go on.

    Args:
        seeds: M of them.
        settings: what is learned, by which models, and how.
        watch: what is recorded.
        each: a function that is called at each evaluation, as ``watch`` says, with the epoch, the models, and the history
            so far, all of them copies. If it returns True, training stops there; otherwise it must return False or None.
            Models of several batch sizes, which are trained one size after another, can have none.
        start: models to go on from, with a fresh Adam, instead of new ones; or one of a training's ``states``, from whose
            epoch training goes on with what Adam remembers: with the settings of that training exactly as it did, to the
            last bit, and with others as a branch of it. The seeds then decide the training data alone, and with
            ``draws="laboratory"`` also the order of the mini-batches: with other seeds, models go on with other data, which
            may be what is wanted. The history begins after the state's epoch. Models must be of the settings' sizes and
            norm.
        checkpoint: start of the names of files, one a batch size, written now and then, from which the same call,
            interrupted, goes on to the same numbers.
        checkpoint_every: epochs between writings.
        progress: show a progress bar on stderr.
        device: where to compute. On a CUDA device, an epoch is replayed as one graph. From a few hundred models on, an H200
            is faster than compiled steps on the CPU; no other GPU has been tried.
        dtype: of the weights.
        compiled: whether to take the steps in C, which this machine's compiler translates within a second or two; unless
            given, wherever that can be done: on the CPU, in float32, if there is a compiler. C is several times as fast,
            above all for few models. The numbers are those of the plain steps up to rounding, but training magnifies
            rounding, so most models soon differ visibly. Compiled steps repeat to the last bit on one machine, not on
            another; ``compiled=False`` gives numbers that do not depend on a compiler.

    Returns:
        What `Training` says, on the CPU.

    Raises:
        ValueError: if ``start`` has scores more than 80 apart, or the checkpoint cannot be read or is of other settings.
        RuntimeError: if ``compiled`` is True and there is no C compiler, or it fails.

    Warns:
        RuntimeWarning: if models diverged; and once, if ``compiled`` is not given and there is no C compiler, or it fails.

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
    """What `train` does, of checked arguments and without its warning: models that share a batch size step together."""
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
    """Let PyTorch compute on one thread of the CPU: several divide an array where its length says, and rounding follows.

    What is bound is how many it computed on before.
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
    """Train models of one batch size to the end, or until ``each`` stops it, from the checkpoint if there is one."""
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
    """Whether models were just evaluated and a function of what there is so far returns True."""
    if not record.history or record.history[-1]["epoch"] != record.epoch:
        return False
    said = each(record.epoch, record.models_of(rows), record.so_far())
    if said is not None and not (is_truth(said) and getattr(said, "ndim", 0) == 0):
        raise TypeError(f"each must return True, False, or None, got {said!r}")
    return bool(said)


def begin(
    seeds: list[int], settings: Grid, watch: Watch, start: Models | TrainingState, compiled: bool, threads: int = 1
) -> tuple[Plain | Kernel, State, Pace, Record]:
    """What steps, what it steps, how, and what is kept."""
    # Filled up with copies of the last model, every array is a multiple of 32 numbers long, and no model is alone: a
    # remainder and a single matrix are rounded otherwise, and a model's numbers would depend on its company. Compiled
    # code takes one model after another.
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
    """One epoch; models that it drives beyond what can be evaluated are put back and stop."""
    before, spread = state.rows.clone(), torch.zeros_like(record.spread)
    order = record.order_of(record.epoch)
    engine.epoch(state, order, pace, record.squares, spread)
    losses, _, _ = engine.predict(state.rows, record.probe, spread)
    sound = (spread <= SPREAD) & losses.isfinite().all(1)  # a spread that is not a number fails
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
    """Train one model per seed, some at a time, on all cores; a chunk that was finished before is read, not trained again.

    Only `train` takes ``each``, which could stop one chunk and not another.

    Args:
        seeds: M of them.
        settings: as for `train`.
        folder: where each finished chunk is saved at once and a running one leaves its checkpoints; nothing is saved unless
            given. Chunks of other settings, or of a task with other labels, are refused.
        watch: what is recorded.
        start: models to go on from, as for `train`.
        chunk: models per task; of fewer chunks than cores, some cores have nothing to do.
        jobs: tasks at a time, joblib's ``n_jobs``; its ``parallel_config`` moves them to a cluster.
        checkpoint_every: epochs between writings.
        progress: show progress bars on stderr.
        dtype: of the weights.
        compiled: take the steps in C, as for `train`.

    Returns:
        As from `train`, and the same numbers whatever ``chunk`` and ``jobs`` are, as far as `train` says.

    Raises:
        ValueError: as `train`, or if the folder holds chunks that cannot be read or that other settings wrote.
        RuntimeError: as `train`.

    Warns:
        RuntimeWarning: as `train`, also of models in chunks that are read.
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
    """One task: read its result, or train and save it."""
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
    """Warn of the models that diverged, by the line that called who calls this."""
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
    """The seeds as a list, settings with a value for each, and whether steps are compiled, if all this makes a training."""
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
    """Whether steps of models of these settings can be compiled; if that is for want of a compiler, warn once."""
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
    """Say once why training is slow."""
    warnings.warn(f"steps are taken in PyTorch, several times slower than in C: {reason}", RuntimeWarning, stacklevel=5)


def fitting(start: Start, settings: Grid, device: torch.device | str, dtype: torch.dtype) -> Models | TrainingState:
    """What to start from, there and in that precision, if it can be evaluated and is what the settings say.

    Args:
        start: models with biases, one per seed, or a state of such.
        settings: with a value for each.
        device: where they go.
        dtype: of their weights there.
    """
    if isinstance(start, TrainingState):
        return replace(start, models=_fitting(start.models, settings, device, dtype))
    if not isinstance(start, Models):
        raise TypeError(f"start must be Models or a TrainingState, as a training has them, got {type(start).__name__}")
    return _fitting(start, settings, device, dtype)


def _fitting(start: Models, settings: Grid, device: torch.device | str, dtype: torch.dtype) -> Models:
    """What `fitting` does, of models."""
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
