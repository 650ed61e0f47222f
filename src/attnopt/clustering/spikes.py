"""Loss spikes: finding them in a record, training through them again step by step, and asking what each came from."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import gelu, one_hot

from attnopt.checks import check_number
from attnopt.clustering.gradients import gelu_derivative
from attnopt.clustering.model import Norm, Params, normalise
from attnopt.clustering.training import initial_models, training_data
from attnopt.clustering.training.group import BETAS, EPSILON, ORDER_SEED
from attnopt.clustering.training.step import Layout, exponentials, loss_and_gradients, marks


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
        rise: above the running low, so that the flutter of tiny losses does not count.
        window: evaluations that the low is taken over.
        patience: evaluations within which a spike is over.

    Raises:
        TypeError: if factor is not a number.
        ValueError: if loss is not of two dimensions and finite, or factor not above 1.
    """
    if loss.ndim != 2 or not loss.isfinite().all():
        raise ValueError(f"loss must be finite, of shape (evaluations, M), got shape {tuple(loss.shape)}")
    check_number("factor", factor, above=1)
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


class State(NamedTuple):
    """What a step of training needs of M models: weights and Adam's moments (M, n), and the steps done so far (M,)."""

    rows: Tensor
    first: Tensor
    second: Tensor
    steps: Tensor


class Course:
    """Training runs with the engine's defaults, step by step.

    Args:
        seeds: of the M models, one may come again.
        norm: the models' normalisation.
        batch_size: sequences a step.
        learning_rate: Adam's.
        dtype: of all arithmetic. The ensembles were trained in float32; in float64 a course is the same on every machine,
            to many digits, for as long as it does not magnify a difference 10¹⁰ times.
        settings: p, length, k, n_train, dim, width, as for `train`.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        norm: Norm = "rms",
        batch_size: int = 32,
        learning_rate: float = 3e-3,
        dtype: torch.dtype = torch.float32,
        **settings: int,
    ) -> None:
        task = [settings.get(name, value) for name, value in (("p", 2), ("length", 12), ("k", 5), ("n_train", 2048))]
        start = initial_models(seeds, task[0], task[1], settings.get("dim", 2), settings.get("width", 32))
        tokens, targets = training_data(seeds, *task)
        self.norm, self.batch_size, self.learning_rate = norm, batch_size, learning_rate
        self.layout = Layout.of(start)
        self.start = self.layout.rows(start).to(dtype)
        self.marks = marks(tokens, task[0], dtype)
        self.truth = one_hot(targets, task[0]).to(dtype)
        self.tokens, self.targets = tokens, targets

    def initial(self) -> State:
        """The state before the first step."""
        zeros = torch.zeros_like(self.start)
        return State(self.start.clone(), zeros.clone(), zeros.clone(), torch.zeros(len(zeros), dtype=torch.long))

    def epoch(self, state: State) -> Iterator[Tensor]:
        """Step through every model's own next epoch, updating the state; after each step, the mini-batches' losses."""
        total = self.marks.shape[1]
        number = state.steps // math.ceil(total / self.batch_size)
        orders = {
            int(n): torch.randperm(total, generator=torch.Generator().manual_seed(ORDER_SEED + int(n)))
            for n in number.unique()
        }
        order = torch.stack([orders[int(n)] for n in number])
        batches = self.marks.gather(1, order.unsqueeze(-1).expand_as(self.marks))
        truth = self.truth.gather(1, order.unsqueeze(-1).expand_as(self.truth)).mT.contiguous()
        gradient = torch.zeros_like(state.rows)
        views, gradients = self.layout.views(state.rows), self.layout.views(gradient)
        slow, slower = BETAS
        for at in range(0, total, self.batch_size):
            part = slice(at, at + self.batch_size)
            batch = loss_and_gradients(views, gradients, batches[:, part], truth[..., part], self.norm)
            state.steps.add_(1)
            steps = state.steps.double().unsqueeze(-1)
            state.first.lerp_(gradient, 1 - slow)
            state.second.mul_(slower).addcmul_(gradient, gradient, value=1 - slower)
            root = (state.second / (1 - slower**steps).to(gradient)).sqrt_().add_(EPSILON)
            state.rows.addcdiv_(state.first * self.learning_rate * (1 / (1 - slow**steps)).to(gradient), root, value=-1)
            yield batch

    def params(self, rows: Tensor) -> Params:
        """The models of rows, in float64."""
        return {name: view.double() for name, view in self.layout.views(rows).items()}


def stages(
    params: Params, marked: Tensor, norm: Norm, held: dict[str, Tensor] | None = None, how: dict[str, str] | None = None
) -> dict[str, Tensor]:
    """What each stage of the model holds on sequences given by their marks (M, n, pL).

    Args:
        params: the models.
        marked: the sequences, as from `marks`.
        norm: the models' normalisation.
        held: the stages at another moment.
        how: what the normalisation does with the change of ``sums`` or ``sequence`` since then. "far": the change is carried
            out as if vectors shorter than 1 had been of length 1, in the same direction, before it. "straight": it is taken
            to first order. Either way what was held is met (with "rms" up to its 1e-5).

    Returns:
        ``sums`` E + P (M, pL, d), ``table``, ``sequence`` ξ (M, n, d) and ``direction``.
    """

    def directions(name: str, vectors: Tensor) -> Tensor:
        kind = (how or {}).get(name)
        if held is None or kind is None:
            return normalise(vectors, norm)
        if kind == "straight":
            change = vectors - held[name]
            return sum(torch.func.jvp(lambda x: normalise(x, norm), (held[name],), (change,)))
        pushed = held[name] * (1 / held[name].norm(dim=-1, keepdim=True)).clamp_min(1.0)
        return normalise(pushed + (vectors - held[name]), norm)

    token, position = params["token"], params["position"]
    sums = (token.unsqueeze(2) + position.unsqueeze(1)).flatten(1, 2)
    table = directions("sums", sums)
    scores = table @ params["query"].unsqueeze(-1) / token.shape[-1] ** 0.5
    weights = exponentials(scores)  # as in training
    totals = marked @ torch.cat([weights * (table @ params["value"].mT), weights], -1)
    sequence = totals[..., :-1] / totals[..., -1:]
    return {"sums": sums, "table": table, "sequence": sequence, "direction": directions("sequence", sequence)}


def layer(params: Params, direction: Tensor) -> Tensor:
    """What the feed-forward layer adds to ξ, shape (M, n, d)."""
    before = direction @ params["receptors"].mT + params["receptor_biases"].unsqueeze(1)
    return gelu(before) @ params["assemblers"].mT + params["assembler_bias"].unsqueeze(1)


def straight_layer(held: Params, held_direction: Tensor, params: Params, direction: Tensor) -> Tensor:
    """`layer` to first order in the changes of its weights and of the direction since what is held."""
    before = held_direction @ held["receptors"].mT + held["receptor_biases"].unsqueeze(1)
    moved = direction @ held["receptors"].mT + held_direction @ (params["receptors"] - held["receptors"]).mT
    moved = moved + params["receptor_biases"].unsqueeze(1)
    active = gelu(before) + gelu_derivative(before) * (moved - before)
    out = active @ held["assemblers"].mT + gelu(before) @ (params["assemblers"] - held["assemblers"]).mT
    return out + params["assembler_bias"].unsqueeze(1)


def answers(params: Params, now: dict[str, Tensor]) -> Tensor:
    """Logits (M, n, p) from the stages."""
    return (now["sequence"] + layer(params, now["direction"])) @ params["token"].mT


def losses(logits: Tensor, truth: Tensor) -> Tensor:
    """Cross-entropies of every sequence, (M, n), from logits and ones at the labels, (M, n, p)."""
    return logits.logsumexp(-1) - (logits * truth).sum(-1)


GROUPS = {
    "embeddings": ("token", "position"),
    "attention": ("query", "value"),
    "feed-forward": ("receptors", "assemblers", "receptor_biases", "assembler_bias"),
}


def dissect(before: Params, after: Params, marked: Tensor, truth: Tensor, norm: Norm) -> dict[str, Tensor]:
    """How much a step raised the mean loss, and how much it would have raised it had something been otherwise.

    Args:
        before: M models.
        after: the same a step later.
        marked: the training sequences of each, as from `marks`, (M, n, pL).
        truth: ones at their labels, (M, n, p).
        norm: the models' normalisation.

    Returns:
        Shape (M,) each. ``loss`` before and ``rise``, then the rise under interventions. For ``far sums`` and ``far
        sequence`` the normalisation of E + P, or of ξ, is kept away from the origin (see `stages`). For ``straight
        normalisation``, ``straight layer``, ``straight logits`` and ``straight loss`` both normalisations, the feed-forward
        layer, the logits as a whole or the loss itself are taken to first order in the step. For ``embeddings``,
        ``attention`` and ``feed-forward`` only these weights make their step.
    """
    held = stages(before, marked, norm)
    logits = answers(before, held)
    start = losses(logits, truth).mean(1)

    def rise(how: dict[str, str] | None = None, only: tuple[str, ...] = tuple(after)) -> Tensor:
        moved = before | {name: after[name] for name in only}
        return losses(answers(moved, stages(moved, marked, norm, held, how)), truth).mean(1) - start

    now = stages(after, marked, norm)
    straight = straight_layer(before, held["direction"], after, now["direction"])
    step = {name: after[name] - before[name] for name in after}
    change = torch.func.jvp(lambda params: answers(params, stages(params, marked, norm)), (before,), (step,))[1]
    return {
        "loss": start,
        "rise": rise(),
        "far sums": rise({"sums": "far"}),
        "far sequence": rise({"sequence": "far"}),
        "straight normalisation": rise({"sums": "straight", "sequence": "straight"}),
        "straight layer": losses((now["sequence"] + straight) @ after["token"].mT, truth).mean(1) - start,
        "straight logits": losses(logits + change, truth).mean(1) - start,
        "straight loss": ((logits.softmax(-1) - truth) * change).sum(-1).mean(1),
        **{name: rise(only=names) for name, names in GROUPS.items()},
    }
