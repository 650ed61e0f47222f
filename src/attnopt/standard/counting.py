"""Token sequences for the transformers of Part V, counts of their tokens, and means of states over equal counts."""

import itertools

import torch
from torch import Tensor
from torch.nn import functional as F

from attnopt.checks import check_count, check_integers, check_matrices


def as_one_hot(tokens: Tensor, p: int) -> Tensor:
    """One-hot vectors of the tokens, followed by that of an extra token p, at which the answer is read.

    Args:
        tokens: tokens in 0 … p - 1, int64, shape (..., L).
        p: size of the vocabulary.

    Returns:
        The vectors, float32, shape (..., L + 1, p + 1).
    """
    check_integers("tokens", tokens, check_count("p", p, 2))
    return F.one_hot(F.pad(tokens, (0, 1), value=p), p + 1).float()


def count_levels(tokens: Tensor, p: int, shifts: tuple[int, ...]) -> Tensor:
    """A number that encodes how often each token occurs among the first k, after each x_t becomes x_t + shift_t modulo p.

    Args:
        tokens: tokens in 0 … p - 1, int64, shape (..., L).
        p: size of the vocabulary.
        shifts: one integer for each of the first k tokens; later tokens are ignored.

    Returns:
        One integer per sequence, shape (...), the same for sequences with the same counts and only for these.
    """
    check_integers("tokens", tokens, check_count("p", p, 2))
    k = len(shifts)
    if not 1 <= k <= tokens.shape[-1]:
        raise ValueError(f"shifts must be 1 to {tokens.shape[-1]} integers, got {k}")
    shifted = (tokens[..., :k] + torch.tensor(shifts, device=tokens.device)) % p
    counts = F.one_hot(shifted, p)[..., 1:].sum(-2)
    return (counts * (k + 1) ** torch.arange(p - 1, device=tokens.device)).sum(-1)


def best_count(states: Tensor, tokens: Tensor, p: int, k: int) -> tuple[tuple[int, ...], Tensor]:
    """The shifts for which `count_levels` explains the largest share of the states' variance, and this share.

    The states are predicted by their means over sequences with equal counts. For p = 2, a shift by 1 changes the sign with
    which a token counts. One shift, here the first, can always be 0.

    Args:
        states: states of all samples, shape (n, width).
        tokens: their tokens, int64, shape (n, L).
        p: size of the vocabulary.
        k: number of tokens that are counted.
    """
    centered = states - states.mean(0)
    found = []
    for rest in itertools.product(range(p), repeat=check_count("k", k) - 1):
        means = level_means(centered, count_levels(tokens, p, (0, *rest)))
        found.append(((0, *rest), means.square().sum() / centered.square().sum()))
    return max(found, key=lambda one: one[1].item())


def level_means(states: Tensor, levels: Tensor) -> Tensor:
    """For each sample, the mean of the states over all samples of its level, shape (n, width).

    Args:
        states: states of the samples, shape (n, width).
        levels: their levels, integers, shape (n,).
    """
    check_matrices(states=states)
    if levels.shape != states.shape[:1]:
        raise ValueError(f"levels must have one integer per sample, {len(states)}, got shape {tuple(levels.shape)}")
    _, index = levels.unique(return_inverse=True)
    sums = torch.zeros(int(index.max()) + 1, states.shape[1], dtype=states.dtype).index_add(0, index, states)
    return (sums / index.bincount()[:, None])[index]
