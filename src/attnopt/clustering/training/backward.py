"""Loss and gradients of an ensemble of small transformers on mini-batches, written out by hand.

Arrays have their features first, (models, features, sequences), so that every elementwise operation runs along the
sequences. The parameters of all models form one matrix with one row per model.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import gelu

from attnopt.clustering.model import NEAR, Norm, Params, smooth_step

SPREAD = 80.0  # the largest spread of scores: e⁻⁸⁰ is still a float32


@dataclass(frozen=True)
class Layout:
    """The positions of a model's parameters in its row.

    Attributes:
        shapes: shape of each parameter of one model, in order.
        size: numbers per row: the parameters, padded with zeros to a multiple of 32.
    """

    shapes: dict[str, tuple[int, ...]]

    @classmethod
    def of(cls, params: Params) -> "Layout":
        """The layout of an ensemble's weights."""
        return cls({name: tuple(value.shape[1:]) for name, value in params.items()})

    @property
    def size(self) -> int:
        """Numbers per row, a multiple of 32, so that no operation meets a remainder that it would treat differently."""
        return -32 * (-sum(math.prod(shape) for shape in self.shapes.values()) // 32)

    def spans(self) -> dict[str, slice]:
        """The columns of each parameter."""
        spans, start = {}, 0
        for name, shape in self.shapes.items():
            spans[name] = slice(start, start + math.prod(shape))
            start += math.prod(shape)
        return spans

    def views(self, rows: Tensor) -> Params:
        """The parameters in rows with any leading dimensions, as views."""
        return {name: rows[..., span].unflatten(-1, self.shapes[name]) for name, span in self.spans().items()}

    def rows(self, params: Params) -> Tensor:
        """The parameters as a matrix with one row per model."""
        first = next(iter(params.values()))
        rows = first.new_zeros(len(first), self.size)
        for name, view in self.views(rows).items():
            view.copy_(params[name])
        return rows


def normalizer(vectors: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
    """The factors φ(r) by which `normalize` multiplies vectors (M, d, …) of length r, and φ′(r)/r."""
    dim, squares = vectors.shape[1], vectors.square().sum(1, keepdim=True)
    lengths = squares.clamp_min(torch.finfo(squares.dtype).tiny).sqrt()
    if norm == "rms":
        factor = 1 / (lengths / dim**0.5 + 1e-5)
        return factor, -factor.square() / (dim**0.5 * lengths)
    if norm == "unit":
        factor = torch.where(squares > 0, 1 / lengths, 0.0)
        return factor, -(factor**3)
    lengths = lengths.clamp_min(NEAR)
    inner, step = lengths.clamp_max(1 - NEAR), smooth_step(lengths)
    slope = step * (1 - step) * (1 / inner.square() + 1 / (1 - inner).square())
    return dim**0.5 * (1 - step + step / lengths), dim**0.5 * (slope * (1 / lengths - 1) - step / lengths.square()) / lengths


def pull_back(grad: Tensor, vectors: Tensor, factor: Tensor, bend: Tensor) -> Tensor:
    """The gradient φ·grad + (φ′/r)(x·grad) x in vectors x, from the gradient ``grad`` in their normalized form φx."""
    return grad * factor + vectors * (bend * (grad * vectors).sum(1, keepdim=True))


def exponentials(scores: Tensor, spread: Tensor | None = None) -> Tensor:
    """Exponentials of the scores of all pairs of token and position, after each model's largest score is subtracted.

    Args:
        scores: scores of M models, shape (M, 1, pL) or (M, pL, 1).
        spread: raised to the difference between each model's largest and smallest score, shape (M,), for the caller to
            judge.

    Raises:
        ValueError: if ``spread`` is not given and a model's scores differ by more than single precision can represent.
    """
    below = scores - scores.amax((-2, -1), keepdim=True)
    if spread is not None:
        torch.maximum(spread, -below.amin((-2, -1)), out=spread)
    elif below.amin() < -SPREAD:
        least = below.flatten(1).amin(1)
        raise too_far(int(least.argmin()), -least.min().item())
    return below.exp()


def too_far(model: int, spread: float) -> ValueError:
    """The error for a model whose scores differ too much."""
    return ValueError(
        f"attention scores must lie within {SPREAD:.0f} of each other, or single precision loses the smaller ones; "
        f"those of model {model} spread over {spread:.1f}: its query has grown too long"
    )


def pair_table(views: Params, norm: Norm, spread: Tensor | None = None) -> dict[str, Tensor]:
    """All quantities that attention needs for the pairs of token and position.

    Args:
        views: parameters, as returned by `Layout.views`.
        norm: the models' normalization.
        spread: see `exponentials`.

    Returns:
        A dict with the ``sums`` of embeddings, their normalized ``table``, and the ``values``, all (M, d, pL), the
        ``weights`` (M, 1, pL), the ``factor`` and ``bend`` that `normalizer` returns, and ``rows`` (M, d + 1, pL), whose
        sums over a sequence's pairs are the numerator and the denominator of ξ.

    Raises:
        ValueError: if the scores of a model differ too much and ``spread`` is not given.
    """
    token, position, query = views["token"], views["position"], views["query"]
    sums = (token.mT.unsqueeze(-1) + position.mT.unsqueeze(-2)).flatten(2)
    factor, bend = normalizer(sums, norm)
    table = sums * factor
    scores = torch.bmm(query.unsqueeze(1), table) / token.shape[-1] ** 0.5
    weights = exponentials(scores, spread)
    values = torch.bmm(views["value"], table)
    rows = torch.cat([values * weights, weights], 1)
    return {"sums": sums, "factor": factor, "bend": bend, "table": table, "weights": weights, "values": values, "rows": rows}


def attend(rows: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
    """Sequence embeddings ξ (M, d, B) and the inverse of each sequence's total weight (M, 1, B).

    Args:
        rows: ``rows`` of `pair_table`, shape (M, d + 1, pL).
        batch: the sequences, as returned by `marks`, shape (M, B, pL).
    """
    totals = torch.bmm(rows, batch.mT)
    inverse = totals[:, -1:].reciprocal()
    return totals[:, :-1] * inverse, inverse


def feed_forward(views: Params, sequence: Tensor, direction: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Activations before and after the GELU (M, h, B) and output ψ (M, d, B) from ξ and ξ normalized."""
    before = torch.baddbmm(views["receptor_biases"].unsqueeze(-1), views["receptors"], direction)
    after = gelu(before)
    return before, after, torch.baddbmm(sequence + views["assembler_bias"].unsqueeze(-1), views["assemblers"], after)


def cross_entropy(logits: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropies (M, B) and probabilities (M, v, B) from logits and one-hot labels, both (M, v, B)."""
    shifted = logits - logits.amax(1, keepdim=True)
    powers = shifted.exp()
    mass = powers.sum(1, keepdim=True)
    return (mass.log() - (shifted * truth).sum(1, keepdim=True)).squeeze(1), powers / mass


def loss_and_gradients(
    views: Params, grads: Params, batch: Tensor, truth: Tensor, norm: Norm, spread: Tensor | None = None
) -> Tensor:
    """Mean cross-entropy of every model on its own batch; the gradients are written into ``grads``.

    Args:
        views: parameters, as returned by `Layout.views`, with biases.
        grads: views of the same shapes, which are overwritten.
        batch: the sequences, as returned by `marks`, shape (M, B, pL).
        truth: one-hot labels, shape (M, v, B), for the v tokens of the vocabulary.
        norm: the models' normalization.
        spread: see `exponentials`.

    Returns:
        Losses, shape (M,).

    Source: Odonnat, Bouaziz, Cabannes (2025), Appendix D.1, with the gradients in the embeddings added.
    """
    token, query, value = views["token"], views["query"], views["value"]
    receptors, assemblers = views["receptors"], views["assemblers"]
    dim, length, count = token.shape[-1], views["position"].shape[1], batch.shape[1]
    pairs = pair_table(views, norm, spread)
    table, weights = pairs["table"], pairs["weights"]
    sequence, inverse = attend(pairs["rows"], batch)
    factor, bend = normalizer(sequence, norm)
    direction = sequence * factor
    before, after, output = feed_forward(views, sequence, direction)
    losses, predicted = cross_entropy(torch.bmm(token, output), truth)
    surprise = (predicted - truth) / count
    pull = torch.bmm(token.mT, surprise)
    torch.sum(pull, -1, out=grads["assembler_bias"])
    grads["assemblers"].copy_(torch.bmm(pull, after.mT))
    hidden = torch.ops.aten.gelu_backward(torch.bmm(assemblers.mT, pull), before)
    torch.sum(hidden, -1, out=grads["receptor_biases"])
    grads["receptors"].copy_(torch.bmm(hidden, direction.mT))
    lifted = inverse * (pull + pull_back(torch.bmm(receptors.mT, hidden), sequence, factor, bend))
    d_totals = torch.cat([lifted, -(lifted * sequence).sum(1, keepdim=True)], 1)
    d_rows = torch.bmm(d_totals, batch)
    d_values = d_rows[:, :dim] * weights
    felt = weights * ((d_rows[:, :dim] * pairs["values"]).sum(1, keepdim=True) + d_rows[:, dim:]) / dim**0.5
    grads["query"].copy_(torch.bmm(table, felt.mT).squeeze(-1))
    grads["value"].copy_(torch.bmm(d_values, table.mT))
    d_table = torch.baddbmm(query.unsqueeze(-1) * felt, value.mT, d_values)
    d_sums = pull_back(d_table, pairs["sums"], pairs["factor"], pairs["bend"]).unflatten(2, (-1, length))
    grads["position"].copy_(d_sums.sum(2).mT)
    grads["token"].copy_(d_sums.sum(3).mT + torch.bmm(surprise, output.mT))
    return losses.mean(1)
