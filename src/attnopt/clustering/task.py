"""Sparse modular addition: sequences of tokens whose first k tokens, added modulo p, are the label."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attnopt.checks import check_count, check_generator, check_tensors

LARGEST = 2**24  # sequences that are listed in full


@dataclass(frozen=True)
class Task:
    """Sequences of tokens 0 … p - 1 whose label is the sum of the first k modulo p; the paper's sizes unless given.

    Attributes:
        p: size of the vocabulary, at least 2.
        length: L, tokens a sequence.
        k: how many of them count.

    Raises:
        TypeError: if a number is not an integer.
        ValueError: if p < 2, length < 1 or k is not in 1 … length.

    Source: Odonnat, Bouaziz, Cabannes (2025), section 2.1.
    """

    p: int = 2
    length: int = 12
    k: int = 5

    def __post_init__(self):
        check_count("p", self.p, 2)
        if check_count("k", self.k) > check_count("length", self.length):
            raise ValueError(f"k must be at most length, {self.length}, got {self.k}")
        for name in ("p", "length", "k"):  # integers of NumPy among them
            object.__setattr__(self, name, int(getattr(self, name)))

    @property
    def size(self) -> int:
        """How many sequences there are, pᴸ."""
        return self.p**self.length

    def labels(self, tokens: Tensor) -> Tensor:
        """The sums (…) modulo p of the first k of the tokens (…, L)."""
        return tokens[..., : self.k].sum(-1) % self.p

    def all(self) -> tuple[Tensor, Tensor]:
        """All pᴸ sequences in lexicographic order, int64, shape (pᴸ, L), and their labels (pᴸ,).

        Raises:
            ValueError: if there are more than 2²⁴.
        """
        if self.size > LARGEST:
            raise ValueError(f"the sequences can not be listed, all {self.p}^{self.length} are more than {LARGEST}: sample")
        tokens = torch.arange(self.size)[:, None] // self.p ** torch.arange(self.length - 1, -1, -1) % self.p
        return tokens, self.labels(tokens)

    def sample(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Sequences drawn uniformly, with replacement, int64, shape (count, L), and their labels (count,).

        Raises:
            TypeError: if ``count`` is not an integer, or ``generator`` none.
            ValueError: if ``count`` is smaller than 1.
        """
        check_generator("generator", generator)
        shape = check_count("count", count), self.length
        tokens = torch.randint(self.p, shape, generator=generator, device=generator.device)
        return tokens, self.labels(tokens)


def check_all_sequences(sequence: Tensor, task: Task) -> None:
    """Require what is computed from all pᴸ sequences to be of all of them, shape (M, pᴸ, d).

    Raises:
        TypeError: if it is no tensor, or the task none.
        ValueError: if it has another shape.
    """
    check_tensors(sequence=sequence)
    check_task(task)
    if sequence.ndim != 3 or sequence.shape[1] != task.size:
        raise ValueError(
            f"sequence must have shape (M, {task.size}, d): all {task.p}^{task.length} sequences are needed, in "
            f"lexicographic order; got {tuple(sequence.shape)}"
        )


def check_task(task: Task) -> None:
    """Require a task.

    Raises:
        TypeError: if it is none.
    """
    if not isinstance(task, Task):
        raise TypeError(f"task must be a Task, got {type(task).__name__}")
