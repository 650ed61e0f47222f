"""Progress on the parity before the loss shows it, and after: Walsh coefficients, curvature, and drops of a loss."""

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from attnopt.checks import check_count, check_integers, check_number, check_tensors, check_vectors
from attnopt.clustering.model import Models, check_models, marks
from attnopt.clustering.task import Task

SUCCESS = 0.9  # a model has learned its task if its accuracy on all sequences exceeds this


def margins(models: Models, factors: Tensor | None = None) -> Tensor:
    """Differences ζ₁ - ζ₀ of every model's logits on all 2ᴸ sequences in lexicographic order, shape (M, 2ᴸ).

    Args:
        models: models with two tokens.
        factors: factors that multiply, at each position, the difference δ_t between the two tokens (see `influences`), shape
            (M, L) or (L,). The mean over the two tokens and all other weights are kept.

    Raises:
        ValueError: if 2ᴸ exceeds 2²⁴, or if ``factors`` are so large that the attention weights of a sequence no longer have
            a positive, finite sum.
    """
    check_models(models)
    if models.vocabulary != 2:
        raise ValueError(
            f"models must have two tokens, got {models.vocabulary}: of more logits, one difference does not say which is "
            "largest; use Models.logits"
        )
    tokens = Task(2, models.length, 1).all()[0]
    if factors is None:
        logits = models.logits(tokens)
    else:
        check_vectors(factors=factors)
        check_tensors(weights=models.weights["token"], factors=factors)
        if tuple(factors.shape) not in ((models.length,), (len(models), models.length)):
            sizes = f"({models.length},) or ({len(models)}, {models.length})"
            raise ValueError(f"factors must have shape {sizes}, got {tuple(factors.shape)}")
        sums = models.summands()
        middle, half = sums.mean(1), factors.unsqueeze(-1) * (sums[:, 1] - sums[:, 0]) / 2
        ends = torch.stack([middle - half, middle + half], 1)
        total = ends[:, tokens, torch.arange(models.length)].sum(2)
        if not (total[..., -1] > 0).all() or not total.isfinite().all():
            least = total[..., -1].min().item()
            raise ValueError(
                f"factors must leave each sequence's weights a positive, finite sum, got a least sum of {least:g}"
            )
        logits = models.classify(total[..., :-1] / total[..., -1:])
    return logits[..., 1] - logits[..., 0]


def influences(models: Models) -> Tensor:
    """The influence ‖δ_t‖ of each position, shape (M, L), which is 0 exactly at blind positions.

    ξ is the ratio of two sums over positions, to which the tokens at position t add vectors; δ_t is the difference between
    two such vectors, the longest if p > 2.

    Source: the chapter "How training leaves the plateau".
    """
    check_models(models)
    rows = models.summands()
    return (rows.unsqueeze(1) - rows.unsqueeze(2)).norm(dim=-1).amax((1, 2))


def escape_level(p: int) -> float:
    """Loss below which a model has left the plateau: 0.6 log₂ p nats, 87% of log p, the loss of uniform predictions."""
    return 0.6 * math.log2(check_count("p", p, 2))


def escape_epochs(history: dict[str, Tensor], p: int) -> Tensor:
    """The first evaluated epoch at which each model's training loss is below `escape_level`, (M,); -1 if there is none.

    Args:
        history: history of a `Training`, or as passed to ``each`` of `train`.
        p: size of the task's vocabulary.
    """
    below = _of_history(history, "loss") < escape_level(p)
    return torch.where(below.any(0), history["epoch"][below.int().argmax(0)], -1)


def successes(history: dict[str, Tensor]) -> Tensor:
    """Whether each model is right on more than 90% of all sequences at the last evaluation, (M,); False if it diverged.

    Args:
        history: history of a `Training`, or as passed to ``each`` of `train`.
    """
    return _of_history(history, "accuracy_all")[-1] > SUCCESS


def _of_history(history: dict[str, Tensor], name: str) -> Tensor:
    """One of the curves of a history, (evaluations, M)."""
    if not isinstance(history, dict) or not {"epoch", name} <= history.keys():
        raise TypeError(f"history must be a dict with epoch and {name}, as training.history, got {type(history).__name__}")
    return history[name]


def walsh(values: Tensor) -> Tensor:
    """Walsh coefficients: the mean of the values times (-1)^(sum of the tokens in S), for every set S of positions.

    Args:
        values: values on all 2ᴸ sequences in lexicographic order, shape (…, 2ᴸ).

    Returns:
        Coefficients, shape (…, 2ᴸ). The coefficient of S has the index whose L binary digits, first to last, are 1 exactly
        at the positions in S.
    """
    count, half = 2 ** _length("values", values), 1
    while half < count:
        pairs = values.unflatten(-1, (-1, 2, half))
        values = torch.stack([pairs.sum(-2), pairs[..., 0, :] - pairs[..., 1, :]], -2).flatten(-3)
        half *= 2
    return values / count


def parity_coefficient(margin: Tensor, k: int) -> Tensor:
    """The parity coefficient π = E[(2y - 1)(ζ₁ - ζ₀)] over all sequences, where y is the parity of the first k tokens.

    From ``margin`` ζ₁ - ζ₀, as returned by `margins`, of shape (…, 2ᴸ), it has shape (…).
    """
    sign = 2 * Task(2, _length("margin", margin), k).all()[1].to(margin.dtype) - 1
    return (margin * sign).mean(-1)


def log_cosh_half(margin: Tensor) -> Tensor:
    """log cosh(m/2) of margins m, without overflow; the loss of two classes is log 2 plus this minus (2y - 1)m/2.

    For m between -0.01 and 0.01, where the formula's difference would cancel, a series is used; the error is below 1e-15.
    """
    check_tensors(margin=margin)
    size, square = margin.abs(), margin.square()
    formula = softplus(-size) + size / 2 - torch.log(torch.tensor(2.0, dtype=margin.dtype))
    return torch.where(size < 0.01, square / 8 - square.square() / 192, formula)


def curvature(model: Models, tokens: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Gradient (n,) and Hessian (n, n) of one model's mean cross-entropy in all n weights, ordered as in ``model.weights``.

    Repeated sequences are computed only once, and attention is computed by one matrix product with the table of all
    pairs of token and position.

    Args:
        model: an ensemble of one.
        tokens: sequences, shape (N, L).
        targets: their labels, shape (N,).

    Raises:
        ValueError: if weights are not finite, or if the scores span so much that exponentials vanish.
    """
    check_models(model)
    model.check_tokens(tokens)
    if len(model) != 1:
        raise ValueError(f"model must be one, got {len(model)}")
    check_integers("targets", targets, model.vocabulary)
    if tokens.ndim != 2 or targets.shape != tokens.shape[:1]:
        found = f"{tuple(tokens.shape)} and {tuple(targets.shape)}"
        raise ValueError(f"tokens and targets must have shapes (N, {model.length}) and (N,), got {found}")
    shapes = [value.shape for value in model.weights.values()]
    sizes = [value.numel() for value in model.weights.values()]
    rows, counts = torch.cat([tokens, targets.unsqueeze(1)], 1).unique(dim=0, return_counts=True)
    here = torch.cat([value.flatten() for value in model.weights.values()])
    shares = counts.to(here) / len(tokens)
    marked = marks(rows[:, :-1], model.vocabulary, here.dtype)

    def loss(flat: Tensor) -> Tensor:
        parts = [part.reshape(shape) for part, shape in zip(flat.split(sizes), shapes, strict=True)]
        at = model.replace(**dict(zip(model.weights, parts, strict=True)))
        table = at.table().flatten(1, 2)
        scores = at.scores(table)
        weights = (scores - scores.amax()).exp().unsqueeze(-1)
        totals = marked @ torch.cat([weights * (table @ at.weights["value"].mT), weights], -1)
        logits = at.classify(totals[..., :-1] / totals[..., -1:])[0]
        return (shares * cross_entropy(logits, rows[:, -1], reduction="none")).sum()

    slope = torch.func.grad(loss)
    along = torch.func.vmap(lambda direction: torch.func.jvp(slope, (here,), (direction,))[1], chunk_size=28)
    gradient = slope(here)
    if not gradient.isfinite().all():
        raise ValueError("weights must be finite and their scores span less than about 700, or a sequence's weights vanish")
    return gradient, along(torch.eye(len(here), dtype=here.dtype))


def find_drops(loss: Tensor, fall: float = 0.1, window: int = 20, smooth: int = 9) -> list[tuple[int, int]]:
    """Stretches of a loss curve over which it falls by at least ``fall`` within ``window`` steps.

    The curve is first replaced by its running median, so spikes count neither as rises nor as drops. Windows over which it
    falls far enough are joined if they overlap. Each stretch is then shortened to run from its largest value to the smallest
    one after it.

    Args:
        loss: loss curve, shape (T,).
        fall: smallest fall that counts.
        window: number of steps within which it must happen.
        smooth: number of steps of the running median, odd.

    Returns:
        First and last step of each drop, in order.
    """
    check_vectors(loss=loss)
    if loss.ndim != 1:
        raise ValueError(f"loss must be one curve, got shape {tuple(loss.shape)}")
    check_number("fall", fall)
    if check_count("smooth", smooth) % 2 == 0:
        raise ValueError(f"smooth must be odd, got {smooth}")
    check_count("window", window)
    ends = loss[:1].expand(smooth // 2), loss[-1:].expand(smooth // 2)
    curve = torch.cat([ends[0], loss, ends[1]]).unfold(0, smooth, 1).median(-1).values
    reach = min(window, len(curve) - 1)
    starts = (curve[: len(curve) - reach] - curve[reach:] >= fall).nonzero().flatten().tolist()
    stretches: list[list[int]] = []
    for at in starts:
        if stretches and at <= stretches[-1][1]:
            stretches[-1][1] = at + reach
        else:
            stretches.append([at, at + reach])
    drops = []
    for first, last in stretches:
        part = curve[first : last + 1]
        top = int(part.argmax())
        drops.append((first + top, first + top + int(part[top:].argmin())))
    return drops


def _length(name: str, values: Tensor) -> int:
    """The length L of the sequences, from values on all 2ᴸ of them."""
    check_tensors(**{name: values})
    count = values.shape[-1] if values.ndim else 0
    if count == 0 or count & (count - 1):
        raise ValueError(f"{name} must be 2ᴸ numbers, got {count}")
    return count.bit_length() - 1
