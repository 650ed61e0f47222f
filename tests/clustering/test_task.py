"""Sparse modular addition: its sequences, its invariances, and what an incomplete look at a sequence reveals."""

import itertools
import json
import math
from dataclasses import FrozenInstanceError, asdict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbook.explorers import Sandbox
from attnopt.clustering import Settings, Task, ideal_circuit, train
from attnopt.clustering.sandbox import Run
from attnopt.clustering.task import check_all_sequences

SIZES = [(2, 5, 3), (3, 4, 2), (3, 4, 4), (4, 4, 3), (5, 3, 1), (6, 3, 2)]


@pytest.mark.parametrize(("p", "length", "k"), SIZES)
def test_all_sequences_once_in_order_with_the_sum_of_their_first_k_tokens(p, length, k):
    tokens, targets = Task(p, length, k).all()
    expected = list(itertools.product(range(p), repeat=length))
    assert [tuple(row) for row in tokens.tolist()] == expected
    assert targets.tolist() == [sum(row[:k]) % p for row in expected]
    assert tokens.dtype == targets.dtype == torch.int64
    assert torch.bincount(targets).tolist() == [p ** (length - 1)] * p  # H(Y) = log p


@pytest.mark.evidence("odonnat-task")
@pytest.mark.parametrize(("p", "length", "k"), SIZES)
def test_the_label_is_invariant_under_the_prefix_order_and_the_suffix_and_under_more(p, length, k):
    tokens, targets = Task(p, length, k).all()
    at = p ** torch.arange(length - 1, -1, -1)

    def label_of(moved):
        return targets[(moved * at).sum(1)]

    for order in itertools.permutations(range(k)):
        assert torch.equal(label_of(tokens[:, [*order, *range(k, length)]]), targets)
    for position in range(k, length):
        moved = tokens.clone()
        moved[:, position] = (moved[:, position] + 1) % p
        assert torch.equal(label_of(moved), targets)
    keeps = 0
    for shift in itertools.product(range(p), repeat=length):
        same = torch.equal(label_of((tokens + torch.tensor(shift)) % p), targets)
        assert same == (sum(shift[:k]) % p == 0)
        keeps += same
    assert keeps == p ** (length - 1)  # as large as a class, so these shifts take a sequence to every one of its label


@pytest.mark.evidence("odonnat-task")
def test_a_predictor_that_misses_a_token_has_accuracy_one_in_p_exactly_and_loss_at_least_log_p():
    tokens, targets = Task(3, 4, 3).all()
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        answers = torch.randn(27, 3, generator=generator, dtype=torch.float64)
        logits = answers[(tokens[:, [0, 2, 3]] * torch.tensor([9, 3, 1])).sum(1)]  # blind to the second token
        assert (logits.argmax(1) == targets).sum() * 3 == len(targets)
        assert torch.nn.functional.cross_entropy(logits, targets) > math.log(3)


def test_as_many_sequences_as_are_listed_in_full(monkeypatch):
    monkeypatch.setattr("attnopt.clustering.task.LARGEST", 16)
    assert len(Task(2, 4, 2).all()[0]) == 16
    with pytest.raises(ValueError, match="all 2\\^5 are more than 16: sample"):
        Task(2, 5, 2).all()


@given(st.integers(2, 7), st.integers(1, 6), st.data())
def test_samples_are_sequences_of_the_task(p, length, data):
    k, n = data.draw(st.integers(1, length)), data.draw(st.integers(1, 50))
    draw = lambda: Task(p, length, k).sample(n, torch.Generator().manual_seed(5))  # noqa: E731
    tokens, targets = draw()
    assert tokens.shape == (n, length)
    assert targets.shape == (n,)
    assert tokens.min() >= 0
    assert tokens.max() < p
    assert torch.equal(targets, tokens[:, :k].sum(1) % p)
    assert torch.equal(tokens, draw()[0])  # the generator alone decides


def test_what_is_not_a_task_is_named():
    for error, message, arguments in (
        (ValueError, "p must be at least 2, got 1", (1, 4, 2)),
        (ValueError, "length must be at least 1, got 0", (2, 0, 1)),
        (ValueError, "k must be at most length, 4, got 5", (2, 4, 5)),
        (ValueError, "k must be at least 1, got 0", (2, 4, 0)),
        (TypeError, "p must be an integer, got 2.0", (2.0, 4, 2)),
        (TypeError, "k must be an integer", (2, 4, "2")),
    ):
        with pytest.raises(error, match=message):
            Task(*arguments)
    generator = torch.Generator()
    for error, message, arguments in (
        (ValueError, "count must be at least 1, got 0", (0, generator)),
        (TypeError, "count must be an integer, got 3.5", (3.5, generator)),
        (TypeError, "generator must be a torch.Generator, got None", (3, None)),
        (TypeError, "generator must be a torch.Generator, got 7", (3, 7)),
    ):
        with pytest.raises(error, match=message):
            Task(2, 4, 2).sample(*arguments)
    with pytest.raises(ValueError, match=r"all 2\^25 are more than 16777216: sample"):
        Task(2, 25, 2).all()
    assert len(Task(2, 24, 3).sample(5, generator)[0]) == 5


def test_labels_are_asked_for_sequences_of_the_task_only():
    task = Task(3, 4, 2)
    assert task.labels(torch.tensor([2, 2, 0, 1])) == 1
    assert task.labels(torch.zeros(5, 0, 4, dtype=torch.long)).shape == (5, 0)
    for error, message, tokens in (
        (ValueError, r"tokens must have shape \(…, 4\), got \(7, 3\)", torch.zeros(7, 3, dtype=torch.long)),
        (ValueError, r"tokens must have shape \(…, 4\), got \(\)", torch.tensor(1)),
        (ValueError, "tokens must lie in 0 … 2, got 0 … 7", torch.tensor([[0, 7, 1, 1]])),
        (ValueError, "tokens must lie in 0 … 2, got -1 … 1", torch.tensor([[0, -1, 1, 1]])),
        (TypeError, "tokens must be a tensor of integers, got torch.float32", torch.zeros(2, 4)),
        (TypeError, "tokens must be a tensor of integers, got torch.bool", torch.zeros(2, 4) > 0),
        (TypeError, "tokens must be a tensor of integers, got list", [[0, 1, 1, 1]]),
    ):
        with pytest.raises(error, match=message):
            task.labels(tokens)


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (lambda tokens: tokens.double().mean(-1), TypeError, r"a tensor of integers, got torch.float64; use .long\(\)"),
        (lambda tokens: tokens[:, 0] > 0, TypeError, r"a tensor of integers, got torch.bool; use .long\(\)"),
        (lambda tokens: tokens[:, 0].tolist(), TypeError, r"a tensor of integers, got list; use torch.as_tensor\(…\)"),
        (lambda tokens: tokens[:, 0].numpy(), TypeError, r"a tensor of integers, got ndarray; use torch.as_tensor\(…\)"),
        (lambda tokens: tokens.sum(-1) + 1, ValueError, "lie in 0 … 1, got "),
        (lambda tokens: tokens[:, 0] - 1, ValueError, "lie in 0 … 1, got -1 … 0"),
        (lambda tokens: tokens[:, :1], ValueError, r"one per sequence, shape \([0-9]+,\), got \([0-9]+, 1\)"),
    ],
)
def test_labels_of_a_rule_and_of_a_subclass_are_checked(labels, error, message):
    with pytest.raises(error, match=f"what rule returns must (be )?{message}"):
        Task(2, 4, 2, labels)
    own = type("Own", (Task,), {"labels": lambda self, tokens: labels(tokens)})(2, 4, 2)
    for ask in (own.all, lambda: own.sample(16, torch.Generator().manual_seed(0)), lambda: train([0], Settings(own))):
        with pytest.raises(error, match=f"labels must (be )?{message}"):
            ask()


def test_a_label_outside_of_the_sequences_tried_first_is_named():
    late = Task(2, 12, 5, rule=lambda tokens: tokens.prod(-1) * 2)
    with pytest.raises(ValueError, match="what rule returns must lie in 0 … 1, got 0 … 2"):
        late.all()


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda tokens: torch.rand(tokens.shape[:-1]).round().long(), r"each time, got [01] and [01] for \["),
        (
            lambda tokens: (tokens.sum(-1) > tokens.sum(-1).double().mean()).long(),
            r"beside any others, got [01] and [01] for",
        ),
        (lambda tokens: torch.arange(len(tokens)) % 2, "beside any others, got 1 and 0 for"),
        (lambda tokens: tokens[0, 0].expand(len(tokens)), "beside any others, got"),
    ],
)
def test_a_rule_is_of_one_sequence_alone(rule, message):
    with pytest.raises(ValueError, match=f"rule must give a sequence the same label {message}"):
        Task(2, 4, 2, rule)


def test_what_knows_sums_only_refuses_other_labels():
    class Renamed(Task):
        """A task of another name."""

    own = Task(2, 4, 3, rule=lambda tokens: (tokens[..., :3].sum(-1) > 1).to(torch.int32))
    assert own.all()[1].dtype == torch.int64
    settings = Settings(own, epochs=0, n_train=8)
    training = train([0], settings)
    for ask in (
        lambda: ideal_circuit(own, 10.0),
        lambda: Run.of_models(training.models, own),
        lambda: Run.of_training(training, own),
        lambda: Sandbox(training, task=own),
    ):
        with pytest.raises(ValueError, match="task must have the sum of the first 3 tokens modulo 2 as its label"):
            ask()
    for sums in (Renamed(2, 4, 3), Task(2, 4, 3, rule=[1, -1, 3, 0])):  # the same labels, said otherwise
        assert ideal_circuit(sums, 10.0).logits(own.all()[0]).isfinite().all()


def test_tasks_are_values():
    assert Task() == Task(2, 12, 5) == Task(np.int64(2), np.int64(12), np.int64(5))
    assert {Task(): 1}[Task(2)] == 1
    assert repr(Task(3)) == "Task(p=3, length=12, k=5)"
    assert json.loads(json.dumps(asdict(Task(np.int64(3))))) == {"p": 3, "length": 12, "k": 5, "rule": None}
    with pytest.raises(FrozenInstanceError):
        Task().p = 3


def majority(tokens):
    return (tokens[..., :5].sum(-1) > 2).long()


def test_a_rule_gives_the_labels():
    for task, label in (
        (Task(2, 6, 5, majority), lambda row: int(sum(row[:5]) > 2)),
        (Task(3, 4, 2, rule=[2, 0, -1, 10**18]), lambda row: (2 * row[0] - row[2] + 10**18 * row[3]) % 3),
        (Task(2, 6, 3, rule=torch.tensor([0, 1, 0, 0, 1, 1])), lambda row: (row[1] + row[4] + row[5]) % 2),
        (Task(3, 3, 2, rule=np.arange(27) % 3), lambda row: row[2]),
        (Task(3, 3, 2, rule=lambda tokens: tokens.amax(-1)), max),
    ):
        tokens, targets = task.all()
        assert targets.tolist() == [label(row) for row in tokens.tolist()]
        assert targets.dtype == torch.int64
        assert torch.equal(task.labels(tokens[:8].unflatten(0, (2, 4)).to(torch.uint8)), targets[:8].view(2, 4))
        tokens, targets = task.sample(50, torch.Generator().manual_seed(1))
        assert targets.tolist() == [label(row) for row in tokens.tolist()]


def test_a_task_knows_the_positions_that_its_label_depends_on():
    function = lambda tokens: tokens[..., [1, 3]].amax(-1)  # noqa: E731
    own = type("Own", (Task,), {"labels": lambda self, tokens: function(tokens)})
    for task, positions in (
        (Task(3, 5, 2), (0, 1)),
        (Task(3, 25, 2), (0, 1)),
        (Task(3, 4, 2, rule=[3, 2, -6, 10**18]), (1, 3)),
        (Task(2, 40, 2, rule=[0] * 39 + [1]), (39,)),
        (Task(2, 4, 2, rule=[2, 0, 4, -2]), ()),
        (Task(3, 4, 1, function), (1, 3)),
        (Task(3, 3, 3, rule=np.arange(27) % 3), (2,)),
        (own(3, 4, 2), (1, 3)),
    ):
        assert task.relevant == positions
    assert Task(2, 5, 2) == Task(2, 5, 2)
    for task in (Task(2, 25, 2, function), own(2, 25, 2)):
        with pytest.raises(ValueError, match="rule must be integer weights if there are more than 16777216"):
            assert task.relevant


def test_a_rule_may_write_into_its_tokens():
    def last_two(tokens):
        tokens[..., :-2] = 0
        return tokens.sum(-1) % 2

    tokens, labels = Task(2, 4, 2, last_two).all()
    assert torch.equal(tokens, Task(2, 4, 2).all()[0])
    assert torch.equal(labels, tokens[:, 2:].sum(-1) % 2)


def test_tasks_with_rules_are_values_and_print_themselves():
    weights = Task(2, 3, 1, rule=[1, 0, 1])
    assert weights == Task(2, 3, 1, rule=torch.tensor([1, 0, 1])) == eval(repr(weights), {"Task": Task})
    assert {weights: 1}[Task(2, 3, 1, np.array([1, 0, 1]))] == 1
    assert weights != Task(2, 3, 1) != Task(2, 3, 1, rule=[1, 0, 0])
    assert repr(Task(2, 6, 5, majority)) == "Task(p=2, length=6, k=5, rule=majority)"
    assert repr(Task(2, 3, 2, rule=[0, 1] * 4)) == "Task(p=2, length=3, k=2, rule=<8 labels>)"
    assert Task(2, 6, 5, majority) == Task(2, 6, 5, majority)


@pytest.mark.parametrize(
    ("rule", "error", "message"),
    [
        ("sum", TypeError, "rule must be None, a function, or a sequence of integers, got 'sum'"),
        (7, TypeError, "rule must be None, a function, or a sequence of integers, got 7"),
        ([1, 0], ValueError, "rule must be 4 weights or 2\\^4 labels, got 2 numbers"),
        ("x" * 1000, TypeError, "rule must be None, a function, or a sequence of integers, got .{20,40}$"),
        (torch.zeros(4), TypeError, r"rule\[0\] must be an integer, got 0.0"),
        ([1, 0, 1, 0.5], TypeError, r"rule\[3\] must be an integer, got 0.5"),
        ([1, 0, True, 1], TypeError, r"rule\[2\] must be an integer, got True"),
        ([[1], [0], [0], [1]], TypeError, r"rule\[0\] must be an integer, got \[1\]"),
        ([0, 1, 2, 1] * 4, ValueError, r"rule\[2\] must be a label in 0 … 1, got 2"),
    ],
)
def test_what_is_not_a_rule_is_named(rule, error, message):
    with pytest.raises(error, match=message):
        Task(2, 4, 2, rule)


@pytest.mark.parametrize(("p", "length"), [(2, 1), (2, 4), (3, 2), (5, 3)])
def test_what_is_computed_from_all_sequences_needs_all(p, length):
    task = Task(p, length, 1)
    check_all_sequences(torch.zeros(2, p**length, 3), task)
    for wrong in (torch.zeros(2, p**length - 1, 3), torch.zeros(p**length, 3), torch.zeros(1, 2, p**length, 3)):
        with pytest.raises(ValueError, match=rf"all {p}\^{length} sequences are needed, in lexicographic order; got \("):
            check_all_sequences(wrong, task)
    with pytest.raises(TypeError, match="sequence must be a torch.Tensor, got list"):
        check_all_sequences([0.0], task)
    with pytest.raises(TypeError, match="sequence must have a real floating-point dtype"):
        check_all_sequences(torch.zeros(2, p**length, 3, dtype=torch.long), task)


@pytest.mark.evidence("odonnat-no-learning-beyond-4")
def test_counts_with_shifts_are_all_that_know_the_label():
    """By exhaustion: every f_1, f_2, f_3 into the residues, k = 2 of L = 3, for a prime and a composite p."""
    for p, units in ((3, (1, 2)), (4, (1, 3))):
        rows = list(itertools.product(range(p), repeat=p))
        affine = {(u, c): tuple((u * v + c) % p for v in range(p)) for u in units for c in range(p)}
        wanted = {(affine[u, a], affine[u, b]) for u in units for a in range(p) for b in range(p)}
        found = set()
        for first, second in itertools.product(rows, repeat=2):
            seen = {}
            if all(
                seen.setdefault((first[x] + second[y]) % p, (x + y) % p) == (x + y) % p for x in range(p) for y in range(p)
            ):
                found.add((first, second))
        assert found == wanted
        assert len(wanted) == len(units) * p**2
        mirrored = {(pair, tuple(tuple(p - 1 - v for v in f) for f in pair)) for pair in wanted}  # S and k(p - 1) - S
        assert all(other in wanted and other != pair for pair, other in mirrored)
        first, second = next(iter(wanted))
        for third in rows:  # behind the prefix only constants
            seen = {}
            knows = all(
                seen.setdefault((first[x] + second[y] + third[z]) % p, (x + y) % p) == (x + y) % p
                for x, y, z in itertools.product(range(p), repeat=3)
            )
            assert knows == (len(set(third)) == 1)
