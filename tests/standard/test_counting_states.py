"""Counts, levels, and means of states, by hand and on states that are made to count; and the rules of the experiment."""

import counting
import guessed_labels
import numpy as np
import pytest
import torch

from attnbook.explorers import PosteriorFormsExplorer, WeightedCountExplorer
from attnopt.clustering import Task
from attnopt.standard import (
    Transformer,
    as_one_hot,
    best_count,
    count_levels,
    level_means,
    load_counter,
    load_guesser,
)


def test_tokens_become_one_hot_and_the_answer_is_read_after_them():
    found = as_one_hot(torch.tensor([[2, 0]]), 3)
    assert found.tolist() == [[[0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1]]]
    with pytest.raises(ValueError, match=r"tokens must lie in 0 … 1, got 0 … 2"):
        as_one_hot(torch.tensor([[2, 0]]), 2)


def test_levels_are_the_counts_after_shifts():
    tokens = Task(3, 4, 2).all()[0]
    levels = count_levels(tokens, 3, (0, 2))
    for one, other in ((0, 1), (5, 70), (33, 34), (80, 7)):
        counts = [
            sorted([tokens[at, 0].item(), (tokens[at, 1].item() + 2) % 3])  # the tokens that occur, and how often
            for at in (one, other)
        ]
        assert (levels[one] == levels[other]) == (counts[0] == counts[1])
    assert len(levels.unique()) == 6
    with pytest.raises(ValueError, match="shifts must be 1 to 4 integers, got 5"):
        count_levels(tokens, 3, (0,) * 5)


def test_means_over_levels():
    states = torch.tensor([[1.0, 0], [3, 2], [5, 5]])
    assert level_means(states, torch.tensor([7, 7, -1])).tolist() == [[2, 1], [2, 1], [5, 5]]
    with pytest.raises(ValueError, match=r"levels must have one integer per sample, 3, got shape \(2,\)"):
        level_means(states, torch.tensor([0, 1]))


@pytest.mark.parametrize(("p", "length", "shifts"), [(2, 6, (0, 1, 1, 0)), (3, 4, (0, 2, 1))])
def test_the_shifts_of_a_state_that_counts_are_found(p, length, shifts):
    tokens = Task(p, length, len(shifts)).all()[0]
    generator = torch.Generator().manual_seed(0)
    each = torch.randn(p, 5, generator=generator).double()  # what a token adds
    shifted = (tokens[:, : len(shifts)] + torch.tensor(shifts)) % p
    states = each[shifted].sum(1)
    found, share = best_count(states, tokens, p, len(shifts))
    assert found == shifts
    assert share == pytest.approx(1)
    noisy = states + torch.randn(states.shape, generator=generator)
    levels = count_levels(tokens, p, shifts)
    within = (noisy - level_means(noisy, levels)).square().sum() / (noisy - noisy.mean(0)).square().sum()
    assert best_count(noisy, tokens, p, len(shifts))[1] == pytest.approx(1 - within.item())


def test_answers_go_on_from_the_state_before_the_last_mlp():
    torch.manual_seed(0)
    model = Transformer(3, 2, 6, width=8, layers=2, heads=2).double()
    inputs = as_one_hot(torch.randint(2, (4, 5)), 2).double()
    states = model.last_states(inputs)[-2]
    labels = model(inputs)[:, -1].argmax(-1)
    assert counting.answers_right(model, states, labels) == 1


def test_influences_and_parity_are_means_over_all_sequences():
    torch.manual_seed(1)
    task = Task(2, 4, 2)
    model, (tokens, labels) = Transformer(3, 2, 5, width=8, layers=1, heads=2).double(), task.all()
    inputs = as_one_hot(tokens, 2).double()
    rows = counting.evaluated(model, inputs, tokens, labels, torch.arange(16) < 8, 2)
    states, logits = model.last_states(inputs)[-2], model.last(inputs)
    for t in range(4):
        moved = states[tokens[:, t] == 1].mean(0) - states[tokens[:, t] == 0].mean(0)
        assert rows["influences"][t] == pytest.approx(moved.norm().item())
    margin = logits[:, 1] - logits[:, 0]
    assert rows["parity"] == pytest.approx((margin[labels == 1].mean() - margin[labels == 0].mean()).item() / 2)
    assert rows["test"] == pytest.approx(torch.nn.functional.cross_entropy(logits[8:], labels[8:]).item())


def test_a_clustering_head_attends_evenly_to_what_is_relevant():
    even = np.array([0.24, 0.2, 0.2, 0.2, 0.1, 0.06, 0.0])
    assert counting.is_clustering(even, 5)
    assert not counting.is_clustering(np.array([0.3, 0.3, 0.2, 0.12, 0.02, 0.06, 0.0]), 5)  # uneven
    assert not counting.is_clustering(np.array([0.2, 0.2, 0.2, 0.2, 0.09, 0.06, 0.05]), 5)  # 0.89


def test_rules_count_solved_runs_only():
    good = {"attention": [[0.5, 0.5, 0]], "count": {"right": 1.0}, "label": {"right": 0.5}, "bits": {"right": 1.0}}
    good["weights"] = {"right": 1.0, "levels": 3}
    other = good | {"count": {"right": 0.6}, "attention": [[0.1, 0.5, 0.4]]}
    seeds = [{"solved": True, "final": row} for row in (good, good, good, good, other)] + [{"solved": False, "final": other}]
    found = counting.asked(seeds, 2)
    assert found["solved"][:2] == [5, 6]
    assert found["head"] == {"held": 4, "verdict": "yes"}
    assert found["count"] == {"held": 4, "verdict": "yes"}
    assert found["weights"] == {"held": 1, "verdict": "no"}
    assert found["bits"] == {"held": 5, "verdict": "yes"}
    assert counting.asked(seeds[3:], 2)["count"] == {"held": 1, "verdict": "mixed"}


def test_intervals_of_a_ratio_of_medians():
    rng = np.random.default_rng(1)
    long, short = rng.normal(20, 1, 200), rng.normal(10, 1, 200)
    middle, low, high = counting.interval([long, short], lambda a, b: np.median(a) / np.median(b))
    assert low < middle < high
    assert middle == pytest.approx(2, abs=0.1)
    assert high - low < 0.2


@pytest.mark.parametrize(
    ("function", "given", "error", "complaint"),
    [
        (as_one_hot, {"p": 1}, ValueError, "p must be at least 2, got 1"),
        (count_levels, {"p": 2.5, "shifts": (0,)}, TypeError, "p must be an integer"),
        (best_count, {"states": torch.zeros(4, 3), "p": 2, "k": 0}, ValueError, "k must be at least 1, got 0"),
        (best_count, {"states": torch.zeros(4, 3), "p": 2, "k": 4}, ValueError, "shifts must be 1 to 3 integers, got 4"),
    ],
)
def test_bad_sizes_are_named(function, given, error, complaint):
    with pytest.raises(error, match=complaint):
        function(tokens=torch.zeros(4, 3).long(), **given)


@pytest.mark.parametrize(("load", "seeds"), [(load_counter, range(10, 20)), (load_guesser, range(5))])
def test_stored_models_are_found_by_setting_and_seed(load, seeds):
    model = load("base", seeds[0])
    assert not torch.equal(model.position, load("base", seeds[-1]).position)
    with pytest.raises(ValueError, match=f"seed must be one of {seeds[0]} … {seeds[-1]}, got {seeds[-1] + 1}"):
        load("base", seeds[-1] + 1)
    with pytest.raises(ValueError, match="setting must be"):
        load("bases", seeds[0])


@pytest.mark.evidence("book-real-counts")
def test_stored_counters_answer_as_the_results_say():
    stored = counting.RECORD.stored()["base"]["seeds"]
    inputs, labels = as_one_hot(Task().all()[0], 2), Task().all()[1]
    for seed in (10, 12, 15):
        right = (load_counter("base", seed).last(inputs).argmax(-1) == labels).double().mean()
        assert right == pytest.approx(stored[seed - 10]["final"]["right"], abs=2e-3)


@pytest.mark.parametrize(("model", "weight"), [("plain", 0), ("twos", 2)])
def test_the_explorer_counts(model, weight):
    for tokens in ([0, 1] * 6, [1, 0, 1, 1, 0, 0, 1, 0, 0, 1, 1, 0], [1] * 5 + [0] * 4 + [1, 0, 0]):
        found = WeightedCountExplorer(model=model, tokens=tokens).compute()
        count = sum(tokens[:5]) + weight * tokens[9]
        assert found["count"] == pytest.approx(count, abs=0.3)
        assert (found["margin"] > 0) == count % 2


def test_the_explorer_of_the_masked_word_knows_the_posterior():
    words = torch.tensor([1, 5, 6, 5, 7, 2, 6, 5])
    found = PosteriorFormsExplorer(words=words.double().tolist()).compute()
    joint = 0.25 * guessed_labels.TOPIC[:, words - 1].prod(-1)
    expected = (joint @ guessed_labels.TOPIC / joint.sum()).tolist()
    assert found["posterior"] == pytest.approx(expected, abs=1e-6)
    assert found["divergence"][4] < 0.02


@pytest.mark.evidence("book-real-counts")
@pytest.mark.parametrize(("seed", "others"), [(10, [0] * 7), (14, [0] * 7), (15, [0] * 4 + [2] * 3)])
def test_answers_follow_the_count_of_a_trained_model(seed, others):
    """From the mean over a level, and if a state is moved from its level to the next."""
    model, (tokens, labels) = load_counter("base", seed).double(), Task().all()
    states, levels = model.last_states(as_one_hot(tokens, 2).double())[-2], tokens @ torch.tensor([1] * 5 + others)
    means = level_means(states, levels)
    assert counting.answers_right(model, means, labels) > 0.99
    assert (means - states.mean(0)).square().sum() > 0.97 * (states - states.mean(0)).square().sum()
    first = {level.item(): means[levels == level][0] for level in levels.unique()}
    inner = (levels < levels.max()).nonzero()[:, 0]
    moved = torch.stack([states[at] - means[at] + first[levels[at].item() + 1] for at in inner])
    assert counting.answers_right(model, moved, 1 - labels[inner]) > 0.94


@pytest.mark.evidence("book-real-counts")
def test_most_of_the_models_that_solve_a_parity_count():
    stored, right, solved = counting.RECORD.stored(), 0, 0
    for setting, chosen in counting.SETTINGS.items():
        if setting in stored and chosen["task"][0] == 2 and chosen["layers"] == 1:
            finals = [seed["final"] for seed in stored[setting]["seeds"] if seed["solved"]]
            solved += len(finals)
            right += sum(max(one["count"]["right"], one["weights"]["right"]) >= 0.95 for one in finals)
    assert (right, solved) == (19, 24)
