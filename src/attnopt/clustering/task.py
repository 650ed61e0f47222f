"""Sparse modular addition: sequences of tokens whose first k tokens, added modulo p, are the label."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attnopt.checks import check_count, check_generator, check_integers, check_tensors

LARGEST = 2**24  # sequences that are listed in full
LISTED = 2**13  # up to so many sequences models are judged on all of them, beyond on a sample of half as many
TEST_SEED = 2**31  # of that sample, apart from small seeds' data


@dataclass(frozen=True)
class Task:
    """Sequences of tokens 0 … p - 1 whose label is the sum of the first k modulo p; the paper's sizes unless given.

    A subclass may define other labels in 0 … p - 1, or draw other sequences: training, its checkpoints and the chunks of
    `ensemble` follow it. The ideal circuit and the laboratory know sums only, and refuse other labels.

    Attributes:
        p: size of the vocabulary, at least 2.
        length: L, tokens a sequence.
        k: how many of them count.

    Source: Odonnat, Bouaziz, Cabannes (2025), section 2.1.
    """

    p: int = 2
    length: int = 12
    k: int = 5

    def __post_init__(self) -> None:
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
        check_integers("tokens", tokens, self.p)
        if tokens.ndim < 1 or tokens.shape[-1] != self.length:
            raise ValueError(f"tokens must have shape (…, {self.length}), got {tuple(tokens.shape)}")
        return tokens[..., : self.k].sum(-1) % self.p

    def labelled(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Sequences (n, L) and their labels (n,), int64.

        Raises:
            ValueError: if a subclass gives other than one label in 0 … p - 1 per sequence.
        """
        labels = self.labels(tokens)
        check_integers("labels", labels, self.p)
        if labels.shape != tokens.shape[:-1]:
            raise ValueError(f"labels must be one per sequence, shape {tuple(tokens.shape[:-1])}, got {tuple(labels.shape)}")
        return tokens, labels.long()

    def all(self) -> tuple[Tensor, Tensor]:
        """All pᴸ sequences in lexicographic order, int64, shape (pᴸ, L), and their labels (pᴸ,).

        Raises:
            ValueError: if there are more than 2²⁴.
        """
        if self.size > LARGEST:
            raise ValueError(f"the sequences can not be listed, all {self.p}^{self.length} are more than {LARGEST}: sample")
        tokens = torch.arange(self.size)[:, None] // self.p ** torch.arange(self.length - 1, -1, -1) % self.p
        return self.labelled(tokens)

    def sample(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Sequences drawn uniformly, with replacement, int64, shape (count, L), and their labels (count,)."""
        check_generator("generator", generator)
        shape = check_count("count", count), self.length
        tokens = torch.randint(self.p, shape, generator=generator, device=generator.device)
        return self.labelled(tokens)

    def judged(self) -> tuple[Tensor, Tensor]:
        """The sequences that trained models are judged on: all, or the same 4096 if there are more than 8192; and labels."""
        if self.size <= LISTED:
            return self.all()
        return self.sample(LISTED // 2, torch.Generator().manual_seed(TEST_SEED))


def check_all_sequences(sequence: Tensor, task: Task) -> None:
    """Require what is computed from all pᴸ sequences to be of all of them, shape (M, pᴸ, d)."""
    check_tensors(sequence=sequence)
    check_task(task)
    if sequence.ndim != 3 or sequence.shape[1] != task.size:
        raise ValueError(
            f"sequence must have shape (M, {task.size}, d): all {task.p}^{task.length} sequences are needed, in "
            f"lexicographic order; got {tuple(sequence.shape)}"
        )


def check_sums(task: Task) -> None:
    """Require a task whose labels are those of `Task`, on the sequences that models are judged on."""
    check_task(task)
    if not all(map(torch.equal, task.judged(), Task(task.p, task.length, task.k).judged())):
        raise ValueError(f"task must have the sum of the first {task.k} tokens modulo {task.p} as its label, got {task}")


def check_task(task: Task) -> None:
    """Require a task."""
    if not isinstance(task, Task):
        raise TypeError(f"task must be a Task, got {type(task).__name__}")
