"""Loss spikes: finding them in a record, training through them again step by step, and asking what each came from."""

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

    ``model``, which run; ``start``, the first evaluation with a loss above the threshold; ``peak``, that with the largest
    loss before the end; ``end``, the first one back below the threshold, None if that takes longer than the patience, a
    collapse; ``low``, the running low before the start; ``height``, the loss at the peak.
    """

    model: int
    start: int
    peak: int
    end: int | None
    low: float
    height: float


def find_spikes(loss: Tensor, factor: float = 2.0, rise: float = 0.02, window: int = 20, patience: int = 50) -> list[Spike]:
    """The spikes and collapses of every run.

    A rise starts where the loss exceeds ``factor`` times its low over the last ``window`` evaluations, and that low by
    more than ``rise``; it ends where the loss no longer does, the low being held. Rises that neither end before the record
    does nor last longer than the patience are left out.

    Args:
        loss: of every run at every evaluation, shape (evaluations, M).
        factor: of the running low, more than 1.
        rise: above the running low, so that the flutter of tiny losses does not count; 0 or more.
        window: evaluations that the low is taken over.
        patience: evaluations within which a spike is over.
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
    """Training runs step by step, each in an epoch of its own; the steps are those of `train` with ``compiled=False``.

    Args:
        seeds: of the M models, one may come again.
        settings: with neither weight decay nor clipping, and one value for all models.
        dtype: of all arithmetic. The ensembles were trained in float32; in float64 a course is the same on every machine,
            to many digits, for as long as it does not magnify a difference 10¹⁰ times.
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
        """Step through every model's own next epoch, updating the state; after each step, the mini-batches' losses."""
        total = self.settings.n_train
        number = (state.steps // math.ceil(total / self.pace.size)).tolist()
        orders = {epoch: order_of(epoch, total) for epoch in set(number)}
        yield from self.engine.steps(state, torch.stack([orders[epoch] for epoch in number]), self.pace)

    def models(self, rows: Tensor) -> Models:
        """The models of rows, in float64."""
        return Models(self.layout.views(rows), self.norm).double()


def stages(
    models: Models, marked: Tensor, held: dict[str, Tensor] | None = None, how: dict[str, str] | None = None
) -> dict[str, Tensor]:
    """What each stage of the models holds on sequences given by their marks (M, n, pL).

    Args:
        models: M of them.
        marked: the sequences, as from `marks`.
        held: the stages at another moment.
        how: what the normalization does with the change of ``sums`` or ``sequence`` since then. "far": the change is carried
            out as if vectors shorter than 1 had been of length 1, in the same direction, before it. "straight": it is taken
            to first order. Either way what was held is met (with "rms" up to its 1e-5).

    Returns:
        ``sums`` E + P (M, pL, d), ``table``, ``sequence`` ξ (M, n, d), ``direction``, ``activations`` and ``logits``.
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
    """What the feed-forward layer adds to ξ, to first order in the changes of its weights and of the direction."""
    old, new = before.weights, after.weights
    moved = direction @ old["receptors"].mT + held["direction"] @ (new["receptors"] - old["receptors"]).mT
    moved = moved + new["receptor_biases"].unsqueeze(1) - held["activations"]
    active = gelu(held["activations"])
    out = (active + gelu_derivative(held["activations"]) * moved) @ old["assemblers"].mT
    return out + active @ (new["assemblers"] - old["assemblers"]).mT + new["assembler_bias"].unsqueeze(1)


def losses(logits: Tensor, truth: Tensor) -> Tensor:
    """Cross-entropies of every sequence, (M, n), from logits and ones at the labels, (M, n, p)."""
    return logits.logsumexp(-1) - (logits * truth).sum(-1)


GROUPS = {
    "embeddings": ("token", "position"),
    "attention": ("query", "value"),
    "feed-forward": ("receptors", "assemblers", "receptor_biases", "assembler_bias"),
}


def dissect(before: Models, after: Models, marked: Tensor, truth: Tensor) -> dict[str, Tensor]:
    """How much a step raised the mean loss, and how much it would have raised it had something been otherwise.

    Args:
        before: M models, with biases.
        after: the same a step later.
        marked: the training sequences of each, as from `marks`, (M, n, pL).
        truth: ones at their labels, (M, n, p).

    Returns:
        Shape (M,) each. ``loss`` before and ``rise``, then the rise under interventions. For ``far sums`` and ``far
        sequence`` the normalization of E + P, or of ξ, is kept away from the origin (see `stages`). For ``straight
        normalization``, ``straight layer``, ``straight logits`` and ``straight loss`` both normalizations, the feed-forward
        layer, the logits as a whole or the loss itself are taken to first order in the step. For ``embeddings``,
        ``attention`` and ``feed-forward`` only these weights make their step.

    Raises:
        ValueError: if models have no biases, the two are not alike, or scores spread too far.
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
