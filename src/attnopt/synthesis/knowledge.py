"""How many examples one attention layer needs to learn a rule from its prompt, and how many a clustering feature saves.

A layer answers with a weighted sum of labels. The eigenvalue of its kernel at the rule and the kernel's second moment
determine one number, the sample-cost constant ν: with the best output scale, the share 1 - n/(n + ν - 1) of the variance is
unexplained after n examples.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from attnopt.checks import (
    check_cost,
    check_count,
    check_entries,
    check_generator,
    check_integers,
    check_labels,
    check_matrices,
    check_number,
    check_tensors,
    check_vectors,
)

LARGEST_SIZE = 2**20  # so many random numbers in single precision are rarely equal


class Price(NamedTuple):
    """The least cost of a softmax head on linear rules, and the squared score scale at which the head attains it."""

    number: float  #: The least limit of n·loss/d.
    spread: float  #: The squared score scale r.


def softmax_price(dim: int) -> Price:
    """The smallest limit of n·loss/d that a softmax head can reach on linear rules, and the squared score scale r for it.

    The limit is for n → ∞ examples with covariates from N(0, I_d). The smallest is
    min (1 - r)/(r(1 - 2r)^(d/2 + 1)) = e(d + 2) + O(1/d) over r; for linear attention, it is d + 1.

    Args:
        dim: d, the number of covariates.

    Source: the chapter "What one layer can know".
    """
    d = check_count("dim", dim)
    spread = 2 / (d + 4 + math.sqrt(d**2 + 4 * d + 8))  # the smaller root of (d + 2)r² - (d + 4)r + 1
    return Price((1 - spread) / (spread * (1 - 2 * spread) ** (d / 2 + 1)), spread)


def agreement_number(length: int, weight: int, p: int, sharpness: float) -> float:
    """The sample-cost constant ν of a head whose scores are β times the number of matching tokens, on uniform sequences.

    With weights e^score and the best output scale, the head leaves 1 - n/(n + ν - 1) of the variance unexplained after n
    examples. For a rule that is a group character of k tokens (for p = 2, their parity), ν = (1 + (p - 1)ρ²)^L / ρ^(2k),
    where ρ = (e^β - 1)/(e^β + p - 1).

    Args:
        length: L, tokens per sequence.
        weight: k, the number of tokens that the rule reads.
        p: size of the vocabulary, at least 2.
        sharpness: the inverse temperature β.

    Source: the chapter "What one layer can know".
    """
    length, weight, p = _sizes(length, weight, p)
    check_number("sharpness", sharpness)
    rho = -math.expm1(-sharpness) / (1 + (p - 1) * math.exp(-sharpness))
    logarithm = length * math.log1p((p - 1) * rho**2) - 2 * weight * math.log(rho)
    return _power(logarithm)


def best_agreement(length: int, weight: int, p: int = 2) -> tuple[float, float]:
    """The sharpness at which `agreement_number` is least, and the least value.

    With ρ and ν as in `agreement_number`: if k < L(p - 1)/p, then (p - 1)ρ² = k/(L - k) and
    ν = (L/(L - k))^L ((p - 1)(L - k)/k)^k; otherwise, the sharpness is infinite, and ν = p^L.

    Args:
        length: L, tokens per sequence.
        weight: k, the number of tokens that the rule reads.
        p: size of the vocabulary, at least 2.

    Source: the chapter "What one layer can know".
    """
    length, weight, p = _sizes(length, weight, p)
    if weight * p >= length * (p - 1):
        return math.inf, float(p) ** length if length * math.log(p) < 700 else math.inf
    rho = math.sqrt(weight / ((length - weight) * (p - 1)))
    rest = length - weight
    logarithm = length * math.log(length / rest) + weight * math.log((p - 1) * rest / weight)
    return math.log1p(p * rho / (1 - rho)), _power(logarithm)


def _power(logarithm: float) -> float:
    """e to this power, or infinity if it would overflow."""
    return math.exp(logarithm) if logarithm < 700 else math.inf


def positive_number(length: int, weight: int, p: int = 2) -> float:
    """The least sample-cost constant ν of nonnegative weights for all rules that are group characters of k tokens.

    The weights are a kernel that has all these rules as eigenfunctions with the same eigenvalue. Let N be the number of
    rules, and Φ their sum, a Krawtchouk polynomial of the number of differing tokens. The least ν is N² / max E(±Φ)₊²,
    attained by (±Φ)₊. It lies between N and 2N; for p = 2 and odd k, it is 2N.

    Args:
        length: L, tokens per sequence.
        weight: k, the number of tokens that the rule reads.
        p: size of the vocabulary, at least 2.

    Source: the chapter "What one layer can know".
    """
    length, weight, p = _sizes(length, weight, p)
    squares = [0, 0]  # of the positive and of the negative part, times p^L
    for differ in range(length + 1):
        terms = ((j, math.comb(differ, j) * math.comb(length - differ, weight - j)) for j in range(weight + 1))
        value = sum((-1) ** j * (p - 1) ** (weight - j) * ways for j, ways in terms)
        squares[value < 0] += math.comb(length, differ) * (p - 1) ** differ * value**2
    rules = math.comb(length, weight) * (p - 1) ** weight
    return rules**2 * p**length / max(squares)


def unseen_mass(shares: Tensor, examples: Sequence[int]) -> Tensor:
    """The probability that none of n examples lies in the query's cell, Σ P(1 - P)^n.

    A cell contains the inputs that a head cannot distinguish. If each cell has one label, 1 or -1, a sharp head with a sink
    (a token of value 0) leaves this share of the variance unexplained. A head with the same output scale for all labelings
    of the cells cannot leave less, averaged over the labelings; with a scale chosen for each labeling, it can.

    Args:
        shares: P, the probabilities of the cells, shape (..., C); rows sum to 1.
        examples: numbers of examples n, each at least 0.

    Returns:
        One number for each n, shape (..., n).

    Source: the chapter "What one layer can know".
    """
    _check_shares(shares)
    if not isinstance(examples, Sequence):
        raise TypeError(f"examples must be a sequence of integers, got {examples!r}")
    numbers = [check_count("examples", number, 0) for number in examples]
    if not numbers:
        raise ValueError("examples must be some numbers, got none")
    powers = torch.tensor(numbers, dtype=shares.dtype, device=shares.device).unsqueeze(-1)
    each = shares.unsqueeze(-2)
    return (each * (1 - each) ** powers).sum(-1)


def examples_needed(shares: Tensor, left: float) -> Tensor:
    """The least number of examples after which `unseen_mass` is at most ``left``.

    Args:
        shares: the probabilities of the cells, shape (..., C); rows sum to 1.
        left: the share of the variance that may remain unexplained, above 0.

    Returns:
        Whole numbers, shape (...).

    Source: the chapter "What one layer can know".
    """
    _check_shares(shares)
    check_number("left", left)
    each = shares.double()
    low, high = each.new_full(shares.shape[:-1], -1.0), each.new_zeros(shares.shape[:-1])

    def too_few(number: Tensor) -> Tensor:
        return (each * (1 - each) ** number.unsqueeze(-1)).sum(-1) > left * (1 + 1e-12)

    while (wanting := too_few(high)).any():
        low, high = torch.where(wanting, high, low), torch.where(wanting, 2 * high + 1, high)
    while ((high - low) > 1).any():
        middle = ((low + high) / 2).floor()
        wanting = too_few(middle)
        low, high = torch.where(wanting, middle, low), torch.where(wanting, high, middle)
    return high.long()


def draw_prompts(size: int, examples: int, prompts: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random prompts: examples and a query, all different, drawn uniformly from all sequences.

    Args:
        size: number of sequences to draw from.
        examples: number of examples in each prompt, less than ``size``.
        prompts: number of prompts.
        generator: random generator.

    Returns:
        Indices of the examples, shape (prompts, examples), and of the queries, shape (prompts,). The call stores one
        number per prompt and sequence.

    Raises:
        ValueError: if there are too few or too many sequences, or a call would take more than 4 GiB.

    Source: the chapter "What one layer can know".
    """
    check_generator("generator", generator)
    size, prompts = check_count("size", size, 2), check_count("prompts", prompts)
    if check_count("examples", examples) >= size:
        raise ValueError(f"examples must be fewer than size, {size}, got {examples}")
    check_cost("size and prompts", f"{size} and {prompts}", gib=prompts * (4 * size + 12 * (int(examples) + 1)) / 2**30)
    if size > LARGEST_SIZE:
        raise ValueError(f"size must be at most 2²⁰, beyond which single precision draws ties, got {size}")
    chosen = torch.rand(prompts, size, generator=generator, device=generator.device).topk(int(examples) + 1).indices
    return chosen[:, 1:], chosen[:, 0]


def read_out(
    features: Tensor, labels: Tensor, context: Tensor, queries: Tensor, sharpness: float, numbers: Tensor
) -> tuple[Tensor, Tensor]:
    """The sum of weighted labels, and the sum of weights, of one head over the first n examples of a prompt.

    The weight of an example is e^(-β‖ξ_j - ξ‖²/(2v)), where ξ_j are its features, ξ the query's, and v the variance of all
    features (the trace of their covariance); it is 1 if the features agree. A softmax head answers with the quotient of the
    sums. A sink, a token of value 0, adds its weight to the second sum; if that weight grows without bound, the answer is,
    up to a factor, the first sum.

    Args:
        features: features ξ of all sequences, shape (N, d).
        labels: their labels, of the same dtype, shape (N,).
        context: indices of the examples, shape (P, n), as returned by `draw_prompts`.
        queries: indices of the queries, shape (P,).
        sharpness: the inverse temperature β.
        numbers: the numbers n of examples, increasing, shape (m,).

    Returns:
        The two sums for each prompt and each n, each of shape (P, m).

    Source: the chapter "What one layer can know".
    """
    check_matrices(features=features)
    check_tensors(features=features, labels=labels)
    check_entries("labels", labels)
    check_number("sharpness", sharpness)
    if features.ndim != 2:
        raise ValueError(f"features must have shape (N, d), got {tuple(features.shape)}")
    for name, value in (("context", context), ("queries", queries)):
        check_integers(name, value, len(features))
    check_integers("numbers", numbers)
    if labels.shape != features.shape[:1]:
        raise ValueError(f"labels must have shape ({len(features)},), one per feature, got {tuple(labels.shape)}")
    if context.ndim != 2 or 0 in context.shape:
        raise ValueError(f"context must have shape (P, n), got {tuple(context.shape)}")
    if queries.shape != context.shape[:1]:
        raise ValueError(f"queries must have shape ({len(context)},), one per row of context, got {tuple(queries.shape)}")
    if numbers.ndim != 1 or not len(numbers) or numbers.min() < 1 or (numbers.diff() < 1).any():
        raise ValueError(f"numbers must have shape (m,) and increase from at least 1, got {numbers.tolist()}")
    if numbers[-1] > context.shape[1]:
        raise ValueError(f"numbers must be at most {context.shape[1]}, the examples of context, got {numbers[-1].item()}")
    variance = (features - features.mean(0)).square().sum(-1).mean()
    away = (features[context] - features[queries].unsqueeze(1)).square().sum(-1)
    weights = torch.exp(-sharpness / 2 * away / variance.clamp_min(torch.finfo(features.dtype).tiny))
    last = numbers.long() - 1
    return (weights * labels[context]).cumsum(1)[:, last], weights.cumsum(1)[:, last]


def _sizes(length: int, weight: int, p: int) -> tuple[int, int, int]:
    """Check L, k, and p."""
    length, weight, p = check_count("length", length), check_count("weight", weight), check_count("p", p, 2)
    if weight > length:
        raise ValueError(f"weight must be at most length, {length}, got {weight}")
    return length, weight, p


def _check_shares(shares: Tensor) -> None:
    """Require distributions over cells."""
    check_vectors(shares=shares)
    check_labels(shares.unsqueeze(-2), "class", "shares")
