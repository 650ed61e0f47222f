"""Sparse modular addition, where the label of a sequence is the sum of its first k tokens modulo p, and other tasks."""

import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from attnopt.checks import check_count, check_generator, check_integers, check_tensors

LARGEST = 2**24  # at most this many sequences can be listed
LISTED = 2**13  # models are judged on all sequences if there are at most this many, else on half as many
TEST_SEED = 2**31  # seed of that sample, far from the small seeds of training data


@dataclass(frozen=True, repr=False)
class Task:
    """Sequences of tokens 0 … p - 1, labeled by the sum of the first k modulo p; the default sizes are the paper's.

    A rule gives other labels in 0 … p - 1, and a subclass may also draw other sequences; training, its checkpoints, and the
    chunks of `ensemble` support both. `ideal_circuit` and `Run` reject labels other than the sum of the first k tokens, so
    the laboratory cannot show models that the package trained on such tasks. (The laboratory can itself train models whose
    rule is integer weights or a table of labels.)

    Attributes:
        p: size of the vocabulary, at least 2.
        length: number of tokens per sequence, L.
        k: number of tokens, from the first on, that the label depends on; if there is a rule, see `relevant` instead.
        rule: None for the sum of the first k tokens; L integers w for Σ w_t x_t modulo p; pᴸ labels, in the order of `all`;
            or a function from tokens (…, L) to labels (…), a tensor of integers. A label must depend only on its sequence: a
            function is called twice for some sequences, in different batches, and rejected if the labels differ.

    Source: Odonnat, Bouaziz, Cabannes (2025), section 2.1, for the sum of the first k tokens.
    """

    p: int = 2
    length: int = 12
    k: int = 5
    rule: Callable[[Tensor], Tensor] | Sequence[int] | None = None

    def __post_init__(self) -> None:
        check_count("p", self.p, 2)
        if check_count("k", self.k) > check_count("length", self.length):
            raise ValueError(f"k must be at most length, {self.length}, got {self.k}")
        for name in ("p", "length", "k"):  # converts integers of NumPy
            object.__setattr__(self, name, int(getattr(self, name)))
        object.__setattr__(self, "rule", self._checked_rule())
        if callable(self.rule):
            self._check_function()

    def _checked_rule(self) -> Callable[[Tensor], Tensor] | tuple[int, ...] | None:
        """The rule, with its numbers converted to a tuple."""
        rule = self.rule.tolist() if isinstance(self.rule, np.ndarray | Tensor) else self.rule
        if rule is None or callable(rule):
            return rule
        if not isinstance(rule, Sequence) or isinstance(rule, str):
            raise TypeError(f"rule must be None, a function, or a sequence of integers, got {reprlib.repr(rule)}")
        if len(rule) not in (self.length, self.size):
            sizes = f"{self.length} weights or {self.p}^{self.length} labels"
            raise ValueError(f"rule must be {sizes}, got {len(rule)} numbers")
        found = tuple(check_count(f"rule[{at}]", number, -(2**63)) for at, number in enumerate(rule))
        for at, label in enumerate(found if len(found) == self.size else ()):
            if not 0 <= label < self.p:
                raise ValueError(f"rule[{at}] must be a label in 0 … {self.p - 1}, got {label}")
        return found

    def _check_function(self) -> None:
        """Require a function to give a sequence the same label in every call and in every batch."""
        tokens = torch.randint(self.p, (64, self.length), generator=torch.Generator().manual_seed(0))
        labels = Task.labels(self, tokens)
        whole, half, alike = torch.arange(64), torch.arange(63, 0, -2), (labels == labels[0]).nonzero()[:, 0]
        for some, when in ((whole, "each time"), (half, "beside any others"), (alike, "beside any others")):
            again = Task.labels(self, tokens[some])
            for at in (again != labels[some]).nonzero()[:1, 0]:
                got = f"{labels[some][at]} and {again[at]} for {tokens[some][at].tolist()}"
                raise ValueError(f"rule must give a sequence the same label {when}, got {got}")

    def __repr__(self) -> str:
        said, rule = f"p={self.p}, length={self.length}, k={self.k}", self.rule
        if callable(rule):
            said += f", rule={getattr(rule, '__qualname__', repr(rule))}"
        elif rule is not None:
            said += f", rule={rule}" if len(rule) == self.length else f", rule=<{len(rule)} labels>"
        return f"{type(self).__qualname__}({said})"

    @property
    def size(self) -> int:
        """Number of sequences, pᴸ."""
        return self.p**self.length

    @cached_property
    def relevant(self) -> tuple[int, ...]:
        """The positions, from 0, on whose tokens the label depends; `invariance` and `Models.count` use them.

        Without a rule, these are the first k positions; with integer weights, those whose weight is not 0 modulo p. For
        other rules, and for a subclass that defines its own labels, all labels are computed, and a position is relevant if
        changing its token changes some label.

        Raises:
            ValueError: if all labels must be computed and there are more than 2²⁴ sequences.
        """
        rule, known = self.rule, type(self).labels is Task.labels
        if known and rule is None:
            return tuple(range(self.k))
        if known and isinstance(rule, tuple) and len(rule) == self.length:
            return tuple(at for at, weight in enumerate(rule) if weight % self.p)
        if self.size > LARGEST:
            raise ValueError(
                f"rule must be integer weights if there are more than {LARGEST} sequences, or the positions that the label "
                f"depends on cannot be found; got {self}"
            )
        labels = self.all()[1]
        by_token = (labels.view(self.p**at, self.p, -1) for at in range(self.length))
        return tuple(at for at, one in enumerate(by_token) if (one != one[:, :1]).any())

    def labels(self, tokens: Tensor) -> Tensor:
        """The labels (…) of sequences (…, L)."""
        check_integers("tokens", tokens, self.p)
        if tokens.ndim < 1 or tokens.shape[-1] != self.length:
            raise ValueError(f"tokens must have shape (…, {self.length}), got {tuple(tokens.shape)}")
        if self.rule is None:
            return tokens[..., : self.k].sum(-1) % self.p
        if callable(self.rule):
            return _one_each("what rule returns", self.rule(tokens.clone()), tokens, self.p)  # a rule may change it
        if len(self.rule) == self.length:
            weights = torch.tensor([weight % self.p for weight in self.rule], device=tokens.device)
            return (tokens * weights).sum(-1) % self.p
        return torch.tensor(self.rule, device=tokens.device)[indices(tokens, self.p)]

    def labeled(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Sequences (n, L) and their labels (n,), int64.

        Raises:
            ValueError: if a rule or a subclass does not give exactly one label in 0 … p - 1 per sequence.
        """
        return tokens, _one_each("labels", self.labels(tokens), tokens, self.p)

    def all(self) -> tuple[Tensor, Tensor]:
        """All pᴸ sequences in lexicographic order, int64, shape (pᴸ, L), and their labels (pᴸ,).

        Raises:
            ValueError: if there are more than 2²⁴ sequences.
        """
        if self.size > LARGEST:
            raise ValueError(f"the sequences can not be listed, all {self.p}^{self.length} are more than {LARGEST}: sample")
        return self.labeled(every(self.p, self.length))

    def sample(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Sequences drawn uniformly, with replacement, int64, shape (count, L), and their labels (count,)."""
        check_generator("generator", generator)
        shape = check_count("count", count), self.length
        tokens = torch.randint(self.p, shape, generator=generator, device=generator.device)
        return self.labeled(tokens)

    def judged(self) -> tuple[Tensor, Tensor]:
        """The sequences on which models are judged (all, or a fixed 4096 if there are more than 8192), and their labels."""
        if self.size <= LISTED:
            return self.all()
        return self.sample(LISTED // 2, torch.Generator().manual_seed(TEST_SEED))


def every(p: int, length: int) -> Tensor:
    """All sequences of ``length`` tokens in lexicographic order, (pᴸ, L)."""
    return torch.arange(p**length)[:, None] // places(p, length) % p


def places(p: int, length: int) -> Tensor:
    """Increase of a sequence's index in lexicographic order when the token at each position increases by 1, (L,)."""
    return p ** torch.arange(length - 1, -1, -1)


def indices(tokens: Tensor, p: int) -> Tensor:
    """The index of each sequence (…, L) in lexicographic order, (…)."""
    return (tokens * places(p, tokens.shape[-1]).to(tokens.device)).sum(-1)


def _one_each(name: str, labels: Tensor, tokens: Tensor, p: int) -> Tensor:
    """Labels (…), converted to int64; there must be one in 0 … p - 1 per sequence (…, L)."""
    try:
        check_integers(name, labels, p)
    except TypeError as error:
        raise TypeError(f"{error}; use {'.long()' if isinstance(labels, Tensor) else 'torch.as_tensor(…)'}") from None
    if labels.shape != tokens.shape[:-1]:
        raise ValueError(f"{name} must be one per sequence, shape {tuple(tokens.shape[:-1])}, got {tuple(labels.shape)}")
    return labels.long()


def check_all_sequences(sequence: Tensor, task: Task) -> None:
    """Require embeddings of all pᴸ sequences, shape (M, pᴸ, d)."""
    check_tensors(sequence=sequence)
    check_task(task)
    if sequence.ndim != 3 or sequence.shape[1] != task.size:
        raise ValueError(
            f"sequence must have shape (M, {task.size}, d): all {task.p}^{task.length} sequences are needed, in "
            f"lexicographic order; got {tuple(sequence.shape)}"
        )


def check_sums(task: Task) -> None:
    """Require a task that has, where models are judged, the sequences of `Task` and the sums as labels."""
    check_task(task)
    if not all(map(torch.equal, task.judged(), Task(task.p, task.length, task.k).judged())):
        raise ValueError(f"task must have the sum of the first {task.k} tokens modulo {task.p} as its label, got {task}")


def check_task(task: Task) -> None:
    """Require a task."""
    if not isinstance(task, Task):
        raise TypeError(f"task must be a Task, got {type(task).__name__}")
