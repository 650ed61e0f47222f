"""Sparse modular addition: sequences of tokens whose first k tokens, added modulo p, are the label."""

import torch
from torch import Tensor

from attnopt.checks import check_count, check_generator, check_tensors

LARGEST = 2**24  # sequences that are listed in full


def modular_addition(
    p: int, length: int, k: int, n_samples: int | None = None, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Sequences of tokens 0 … p - 1 and the sum of their first k tokens modulo p.

    Args:
        p: size of the vocabulary, at least 2.
        length: L, tokens a sequence.
        k: how many of them count.
        n_samples: draw that many sequences uniformly, with replacement; all pᴸ in lexicographic order unless given.
        generator: draws the samples.

    Returns:
        Tokens, int64, shape (n, L), and targets, int64, shape (n,).

    Raises:
        TypeError: if a number is not an integer, or samples are asked for without a generator.
        ValueError: if p < 2, length < 1, k is not in 1 … length, n_samples < 1, or pᴸ exceeds 2²⁴ with no n_samples.

    Source: Odonnat, Bouaziz, Cabannes (2025), section 2.1.
    """
    p, length, k = check_task(p, length, k)
    if n_samples is None:
        if p**length > LARGEST:
            raise ValueError(f"n_samples must be given, all {p}^{length} sequences are more than {LARGEST}")
        index = torch.arange(p**length)
        tokens = index[:, None] // p ** torch.arange(length - 1, -1, -1) % p
    else:
        check_generator("generator", generator)
        tokens = torch.randint(
            p, (check_count("n_samples", n_samples), length), generator=generator, device=generator.device
        )
    return tokens, tokens[:, :k].sum(1) % p


def check_all_sequences(sequence: Tensor, p: int, length: int) -> None:
    """Require what is computed from all pᴸ sequences to be of all of them, shape (M, pᴸ, d).

    Raises:
        TypeError: if it is no tensor, or p or the length no integer.
        ValueError: if it has another shape.
    """
    check_tensors(sequence=sequence)
    count = check_count("p", p, 2) ** check_count("length", length)
    if sequence.ndim != 3 or sequence.shape[1] != count:
        raise ValueError(
            f"sequence must have shape (M, {count}, d): all {p}^{length} sequences are needed, in lexicographic order; "
            f"got {tuple(sequence.shape)}"
        )


def check_task(p: int, length: int, k: int) -> tuple[int, int, int]:
    """Require p ≥ 2 and 1 ≤ k ≤ length.

    Raises:
        TypeError: if a number is not an integer.
        ValueError: if they are not in range.
    """
    check_count("p", p, 2)
    if check_count("k", k) > check_count("length", length):
        raise ValueError(f"k must be at most length, {length}, got {k}")
    return int(p), int(length), int(k)
