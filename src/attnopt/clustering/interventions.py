"""Does a trained model use the count? Its accuracy when part of its computation is replaced or removed."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import gelu

from attnopt.checks import check_count, check_generator, check_integers
from attnopt.clustering.anatomy import level_means
from attnopt.clustering.model import Models, check_models, marks, normalize
from attnopt.clustering.task import Task


def levels(weights: Tensor, task: Task) -> Tensor:
    """The level Σ m_t x_t of every sequence x, for the integer weights m of each of M models, shape (M, pᴸ).

    Args:
        weights: integer weights m, shape (M, L), as returned by `Models.count`.
        task: the task that the sequences belong to.
    """
    check_integers("weights", weights)
    if weights.ndim != 2 or weights.shape[1] != task.length:
        raise ValueError(f"weights must have shape (M, {task.length}), got {tuple(weights.shape)}")
    tokens = task.all()[0].to(torch.float64)
    return (weights.to(torch.float64) @ tokens.mT).round().long()


def right(models: Models, sequence: Tensor, targets: Tensor) -> Tensor:
    """Accuracies (M,) of models for targets (n,) or (M, n), from sequence embeddings ξ (M, n, d)."""
    return agreement(answers(models, sequence), targets)


def agreement(said: Tensor, targets: Tensor) -> Tensor:
    """The share (M,) of answers, tokens of shape (M, n), that equal the targets (n,) or (M, n)."""
    return (said == targets).double().mean(1)


def answers(models: Models, sequence: Tensor) -> Tensor:
    """The tokens with the largest logits (M, n), from sequence embeddings ξ (M, n, d); a tie with token 0 gives 0."""
    return _largest(_margins(models, models.feed_forward(sequence)))


def _margins(models: Models, output: Tensor) -> Tensor:
    """ζ_x - ζ₀ for x = 1 … p - 1, from ψ (M, n, d), shape (M, n, p - 1).

    They are one product, because a difference of logits would cancel where the embeddings nearly agree.
    """
    token = models.weights["token"]
    return torch.einsum("mnd,mkd->mnk", output, token[:, 1:] - token[:, :1])


def _largest(margins: Tensor) -> Tensor:
    """The tokens (…) with the largest logits, from their margins over token 0, (…, p - 1)."""
    most, which = margins.max(-1)
    return torch.where(most > 0, which + 1, 0)


def donors(level: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """For each sequence, the index of another one of the same level and of one of another level, drawn uniformly, (M, n).

    A sequence that is alone on its level gets itself as the first; if there is only one level, each gets itself as the
    second.

    Args:
        level: level of each sequence, integers, shape (M, n).
        generator: random generator that draws the indices.
    """
    check_integers("level", level)
    check_generator("generator", generator)
    same, other = torch.empty_like(level), torch.empty_like(level)
    for at, own in enumerate(level):
        _, member, sizes = own.unique(return_inverse=True, return_counts=True)
        order, first = member.argsort(stable=True), sizes.cumsum(0) - sizes
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order)) - first.repeat_interleave(sizes)
        size = sizes[member]
        draw = torch.rand(2, len(own), generator=generator, dtype=torch.float64)
        step = 1 + (draw[0] * (size - 1)).long()
        same[at] = order[first[member] + torch.where(size > 1, (place + step) % size, place)]
        beyond = first[member] + size + (draw[1] * (len(own) - size)).long()
        other[at] = order[torch.where(size < len(own), beyond % len(own), first[member] + place)]
    return same, other


def replacements(models: Models, task: Task, weights: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
    """Accuracies over all sequences when the sequence embedding ξ, or part of it, is replaced.

    ξ is split into its mean over the sequences with the same count Σ m_t x_t (its level) and the remainder.

    Args:
        models: models with as many tokens as the task.
        task: the task that defines sequences and labels.
        weights: integer weights m, shape (M, L), as returned by `Models.count`.
        generator: random generator that draws the other sequences.

    Returns:
        A dict of accuracies, each of shape (M,), measured against the sequence's own label except for ``other``.

        - ``none``: nothing is replaced;
        - ``mean``: ξ is replaced by its level's mean, without the remainder;
        - ``rest``: the remainder is taken from a sequence of another level;
        - ``same``: ξ is taken from another sequence of the same level;
        - ``other``: the level's mean is taken from a sequence of another level, whose label is the target;
        - ``kept``: the same replacement as in ``other``, measured against the sequence's own label.
    """
    _check(models, task)
    check_generator("generator", generator)
    targets, level = task.all()[1], levels(weights, task)
    sequence = models.sequences(task.all()[0])
    means = level_means(sequence, level)
    same, other = donors(level, generator)
    taken = lambda values, which: values.gather(1, which.unsqueeze(-1).expand(-1, -1, values.shape[-1]))  # noqa: E731
    said, moved = answers(models, sequence), answers(models, taken(means, other) + sequence - means)
    return {
        "none": agreement(said, targets),
        "mean": right(models, means, targets),
        "rest": right(models, means + taken(sequence - means, other), targets),
        "same": agreement(said.gather(1, same), targets),
        "other": agreement(moved, targets[other]),
        "kept": agreement(moved, targets),
    }


def removals(models: Models, task: Task, generator: torch.Generator) -> dict[str, Tensor]:
    """Accuracies over all sequences when a part of the model is removed.

    Args:
        models: models with as many tokens as the task.
        task: the task that defines sequences and labels.
        generator: random generator that permutes the sequences for ``attention``.

    Returns:
        A dict of accuracies.

        - ``query`` (M,): the query is set to 0, so attention is uniform;
        - ``attention`` (M,): the attention weights are randomly permuted among the sequences;
        - ``positions`` (M, L): at one position, all tokens get the mean of their normalized embeddings;
        - ``neurons`` (M, h): one neuron is held at its mean over all sequences.
    """
    _check(models, task)
    check_generator("generator", generator)
    tokens, targets = task.all()
    table = models.table()
    marked = marks(tokens, task.p, table.dtype)
    rows = models.summands(table)
    uniform = models.replace(query=torch.zeros_like(models.weights["query"])).summands(table)
    sums = _summed(marked, rows)
    elsewhere = torch.randperm(len(tokens), generator=generator)
    scores = models.scores(table).exp()
    paid = scores.flatten(1)[:, tokens * task.length + torch.arange(task.length)]  # (M, n, L)
    paid = (paid / paid.sum(-1, keepdim=True))[:, elsewhere]
    values = table @ models.weights["value"].mT.unsqueeze(1)
    mixed = torch.zeros_like(sums[..., :-1])
    positions, means = [], models.summands(table.mean(1))
    for t in range(task.length):
        mixed += paid[..., t : t + 1] * values[:, :, t][:, tokens[:, t]]
        zero = tokens[:, t] == 0  # a sequence with another token there is answered like the one with 0
        said = answers(models, _divided(sums[:, zero] + (means[:, t] - rows[:, 0, t]).unsqueeze(1)))
        positions.append(sum(agreement(said, targets[tokens[:, t] == token]) for token in range(task.p)) / task.p)
    return {
        "query": right(models, _divided(_summed(marked, uniform)), targets),
        "attention": right(models, mixed, targets),
        "positions": torch.stack(positions, 1),
        "neurons": _without_neurons(models, _divided(sums), targets),
    }


def _summed(marked: Tensor, rows: Tensor) -> Tensor:
    return torch.einsum("nr,mre->mne", marked, rows.flatten(1, 2))


def _divided(sums: Tensor) -> Tensor:
    return sums[..., :-1] / sums[..., -1:]


def _without_neurons(models: Models, sequence: Tensor, targets: Tensor) -> Tensor:
    """Accuracy (M, h) with each neuron in turn held at its mean."""
    active = gelu(models.activations(normalize(sequence, models.norm)))
    margin = _margins(models, models.feed_forward(sequence)).unsqueeze(2)
    token, assemblers = models.weights["token"], models.weights["assemblers"]
    pull = torch.einsum("mdh,mkd->mhk", assemblers, token[:, 1:] - token[:, :1])
    surplus = (active - active.mean(1, keepdim=True)).unsqueeze(-1)
    said = _largest(margin - surplus * pull.unsqueeze(1))  # without what a neuron adds to the margins beyond its mean
    return (said == targets.unsqueeze(-1)).double().mean(1)


def _check(models: Models, task: Task) -> None:
    check_models(models)
    models.check_task(task)
    if task.p != models.vocabulary:
        raise ValueError(f"models must have the task's {task.p} tokens, got {models.vocabulary}")


def in_parts(models: Models, function: Callable[[Models, int], dict[str, Tensor]], size: int = 10) -> dict[str, Tensor]:
    """Apply a function to at most ``size`` models at a time, and join the results.

    The function takes these models and the index of the first one.
    """
    check_models(models)
    size = check_count("size", size)
    parts = [function(models[at : at + size], at) for at in range(0, len(models), size)]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
