"""Loss spikes: finding them in a record, training through them again step by step, and testing what caused each."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import gelu

from attnopt.checks import check_count, check_matrices, check_number, check_tensors
from attnopt.clustering.gradients import gelu_derivative
from attnopt.clustering.model import BIASES, Models, check_models, normalize
from attnopt.clustering.training import PAPER, Settings, initial_models, training_data
from attnopt.clustering.training.backward import Layout, exponentials
from attnopt.clustering.training.settings import PER_MODEL
from attnopt.clustering.training.step import Pace, Plain, State, order_of


class Spike(NamedTuple):
    """A rise of a run's loss.

    ``model`` is the index of the run; ``start`` the first evaluation with a loss above the threshold; ``peak`` the one with
    the largest loss before the end; ``end`` the first one no longer above the threshold, or None if that takes longer than
    the patience (a collapse); ``low`` the running minimum before the start; and ``height`` the loss at the peak.
    """

    model: int
    start: int
    peak: int
    end: int | None
    low: float
    height: float


def find_spikes(loss: Tensor, factor: float = 2.0, rise: float = 0.02, window: int = 20, patience: int = 50) -> list[Spike]:
    """The spikes and collapses of every run's loss.

    A rise starts where the loss exceeds its minimum over the last ``window`` evaluations both by the ``factor`` and by more
    than ``rise``. That minimum is then held fixed, and the rise ends where either condition fails. A rise is left out if the
    record ends before the rise does and within the patience.

    Args:
        loss: loss of every run at every evaluation, shape (evaluations, M).
        factor: factor by which the loss must exceed the running minimum, more than 1.
        rise: amount by which it must exceed the minimum, 0 or more, so that fluctuations of tiny losses do not count.
        window: evaluations over which the minimum is taken.
        patience: evaluations within which a spike must end.
    """
    check_matrices(loss=loss)
    if loss.ndim != 2:
        raise ValueError(f"loss must have shape (evaluations, M), got {tuple(loss.shape)}")
    check_number("factor", factor, above=1)
    check_number("rise", rise, least=0)
    window, patience = check_count("window", window), check_count("patience", patience)
    found = []
    for model, course in enumerate(loss.T.double().tolist()):
        at = 1
        while at < len(course):
            low = min(course[max(0, at - window) : at])
            threshold = max(factor * low, low + rise)
            if course[at] <= threshold:
                at += 1
                continue
            later = range(at + 1, min(at + patience + 1, len(course)))
            end = next((t for t in later if course[t] <= threshold), None)
            last = end if end is not None else min(at + patience + 1, len(course))
            if end is not None or at + patience < len(course):
                peak = max(range(at, last), key=course.__getitem__)
                found.append(Spike(model, at, peak, end, low, course[peak]))
            at = last + 1 if end is None else end + 1
    return found


class Course:
    """Training runs that advance by single steps and can be at different epochs.

    Steps are those of `train` with ``compiled=False``.

    Args:
        seeds: seeds of the M models, which may repeat.
        settings: settings with one value for all models and the default ``draws``, without mlp_discount, weight decay, or
            clipping.
        dtype: dtype of all arithmetic. The ensembles were trained in float32; in float64, a course agrees to many digits
            on all machines, unless it magnifies differences by a factor of about 10¹⁰.
    """

    def __init__(self, seeds: Sequence[int], settings: Settings = PAPER, dtype: torch.dtype = torch.float32) -> None:
        for name in PER_MODEL:
            given, plain = getattr(settings, name), getattr(PAPER, name)
            if isinstance(given, tuple):
                raise ValueError(f"{name} must be one for all models, got {given}")
            if name in ("mlp_discount", "weight_decay", "clip") and given != plain:
                raise ValueError(f"{name} must be {plain} here, got {given}")
        if settings.draws != PAPER.draws:
            raise ValueError(f"draws must be {PAPER.draws!r} here, got {settings.draws!r}")
        start = initial_models(seeds, settings).weights
        self.tokens, self.targets = training_data(seeds, settings.task, settings.n_train)
        self.settings, self.norm = settings, settings.norm
        self.layout = Layout.of(start)
        self.start = self.layout.rows(start).to(dtype)
        self.engine = Plain(self.layout, self.norm, self.tokens, self.targets, dtype)
        self.marks, self.truth = self.engine.data[0], self.engine.data[1].mT
        plan = settings.each(1)
        self.pace = Pace(plan.batch_size[0], plan.betas, plan.eps, plan.learning_rate[0])

    def initial(self) -> State:
        """The state before the first step."""
        return State.of(self.start.clone())

    def epoch(self, state: State) -> Iterator[Tensor]:
        """Step through each model's own next epoch, changing the state; after each step, yield the mini-batches' losses."""
        total = self.settings.n_train
        number = (state.steps // math.ceil(total / self.pace.size)).tolist()
        orders = {epoch: order_of(epoch, total) for epoch in set(number)}
        yield from self.engine.steps(state, torch.stack([orders[epoch] for epoch in number]), self.pace)

    def models(self, rows: Tensor) -> Models:
        """The models in a matrix of rows, in float64."""
        return Models(self.layout.views(rows), self.norm).double()


def stages(
    models: Models, marked: Tensor, held: dict[str, Tensor] | None = None, how: dict[str, str] | None = None
) -> dict[str, Tensor]:
    """The values of the models' stages on sequences that are given as rows of zeros and ones, shape (M, n, pL).

    Args:
        models: the M models.
        marked: the sequences, as returned by `attnopt.clustering.model.marks`.
        held: the stages at an earlier moment, from which ``how`` measures changes.
        how: treatment of the change of ``sums`` or ``sequence`` since then by the normalization. With "far", earlier vectors
            shorter than 1 are first extended to length 1; with "straight", the change is taken to first order. Without a
            change, both give the earlier values (with "rms" up to its 1e-5).

    Returns:
        A dict with ``sums`` E + P and their normalized ``table``, both (M, pL, d), ``sequence`` ξ and ``direction``, both
        (M, n, d), ``activations``, and ``logits``.
    """

    def directions(name: str, vectors: Tensor) -> Tensor:
        kind = (how or {}).get(name)
        if held is None or kind is None:
            return normalize(vectors, models.norm)
        if kind == "straight":
            change = vectors - held[name]
            found = torch.func.jvp(lambda x: normalize(x, models.norm), (held[name],), (change,))
            return found[0] + found[1]
        pushed = held[name] * (1 / held[name].norm(dim=-1, keepdim=True)).clamp_min(1.0)
        return normalize(pushed + (vectors - held[name]), models.norm)

    token, position = models.weights["token"], models.weights["position"]
    sums = (token.unsqueeze(2) + position.unsqueeze(1)).flatten(1, 2)
    table = directions("sums", sums)
    weights = exponentials(models.scores(table).unsqueeze(-1))  # as in training
    totals = marked @ torch.cat([weights * (table @ models.weights["value"].mT), weights], -1)
    sequence = totals[..., :-1] / totals[..., -1:]
    direction = directions("sequence", sequence)
    activations = models.activations(direction)
    logits = models.output(sequence, activations) @ token.mT
    found = {"sums": sums, "table": table, "sequence": sequence, "direction": direction}
    return found | {"activations": activations, "logits": logits}


def straight_layer(before: Models, held: dict[str, Tensor], after: Models, direction: Tensor) -> Tensor:
    """The term that the feed-forward layer adds to ξ, to first order in the changes of its weights and of the direction."""
    old, new = before.weights, after.weights
    moved = direction @ old["receptors"].mT + held["direction"] @ (new["receptors"] - old["receptors"]).mT
    moved = moved + new["receptor_biases"].unsqueeze(1) - held["activations"]
    active = gelu(held["activations"])
    out = (active + gelu_derivative(held["activations"]) * moved) @ old["assemblers"].mT
    return out + active @ (new["assemblers"] - old["assemblers"]).mT + new["assembler_bias"].unsqueeze(1)


def losses(logits: Tensor, truth: Tensor) -> Tensor:
    """Cross-entropies of every sequence, (M, n), from logits and one-hot labels, both (M, n, p)."""
    return logits.logsumexp(-1) - (logits * truth).sum(-1)


GROUPS = {
    "embeddings": ("token", "position"),
    "attention": ("query", "value"),
    "feed-forward": ("receptors", "assemblers", "receptor_biases", "assembler_bias"),
}


def dissect(before: Models, after: Models, marked: Tensor, truth: Tensor) -> dict[str, Tensor]:
    """The rise of the mean loss in one step, and what the rise would have been under various interventions.

    Args:
        before: M models with biases, before the step.
        after: the same models after the step.
        marked: the training sequences of each model, as in `stages`, shape (M, n, pL).
        truth: one-hot labels of these, shape (M, n, p).

    Returns:
        A dict of tensors, each of shape (M,), with the ``loss`` before the step, its ``rise``, and the rise under
        interventions. For ``far sums``, the normalization of E + P is kept away from the origin; for ``far
        sequence``, that of ξ (see `stages`). For ``straight normalization``, both normalizations are taken to first order in
        the step; for ``straight layer``, the feed-forward layer; for ``straight logits``, the logits as a whole; and for
        ``straight loss``, the loss itself. For ``embeddings``, ``attention``, and ``feed-forward``, only these weights are
        changed.

    Raises:
        ValueError: if models have no biases, the two ensembles differ in sizes or norm, or scores differ by more than 80.
    """
    for name, models in (("before", before), ("after", after)):
        check_models(models, name)
        if not models.weights.keys() >= set(BIASES):
            raise ValueError(f"{name} must have both biases, got {models}")
    if str(before) != str(after):
        raise ValueError(f"after must be as before, {before}, got {after}")
    check_tensors(token=before.weights["token"], marked=marked, truth=truth)
    pairs, shape = before.vocabulary * before.length, marked.shape[:2]
    for name, value, last in (("marked", marked, pairs), ("truth", truth, before.vocabulary)):
        if value.shape != (len(before), *shape[1:], last):
            raise ValueError(f"{name} must have shape ({len(before)}, n, {last}), got {tuple(value.shape)}")
    held = stages(before, marked)
    logits = held["logits"]
    start = losses(logits, truth).mean(1)

    def rise(how: dict[str, str] | None = None, only: Sequence[str] = tuple(after.weights)) -> Tensor:
        moved = before.replace(**{name: after.weights[name] for name in only})
        return losses(stages(moved, marked, held, how)["logits"], truth).mean(1) - start

    now = stages(after, marked)
    straight = straight_layer(before, held, after, now["direction"])
    step = {name: value - before.weights[name] for name, value in after.weights.items()}
    follow = lambda weights: stages(before.replace(**weights), marked)["logits"]  # noqa: E731
    change = torch.func.jvp(follow, (before.weights,), (step,))[1]
    return {
        "loss": start,
        "rise": rise(),
        "far sums": rise({"sums": "far"}),
        "far sequence": rise({"sequence": "far"}),
        "straight normalization": rise({"sums": "straight", "sequence": "straight"}),
        "straight layer": losses((now["sequence"] + straight) @ after.weights["token"].mT, truth).mean(1) - start,
        "straight logits": losses(logits + change, truth).mean(1) - start,
        "straight loss": ((logits.softmax(-1) - truth) * change).sum(-1).mean(1),
        **{name: rise(only=names) for name, names in GROUPS.items()},
    }
