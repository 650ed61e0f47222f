"""Interventions against the forward pass with its stages patched, and against the circuit whose answers are known."""

import pytest
import torch

from attnopt.clustering import Models, Task, levels, load_models, removals, replacements
from attnopt.clustering.interventions import donors, in_parts

TASK = Task(2, 6, 3)
TASKS = [TASK, Task(3, 6, 3), Task(3, 6, 2, rule=lambda tokens: tokens.amax(-1))]


def random_models(count=3, seed=0, width=5, p=2):
    generator = torch.Generator().manual_seed(seed)
    return Models.random(count, p, 6, 2, width, norm="rms", biases=True, generator=generator)


def drawn(seed=0):
    return torch.Generator().manual_seed(seed)


def accuracy(logits, targets):
    return (logits.argmax(-1) == targets).double().mean(1)


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_removals_are_the_forward_pass_patched(task):
    models, (tokens, targets) = random_models(p=task.p), task.all()
    found = removals(models, task, drawn(3))
    held = models.stages(tokens)
    elsewhere = torch.randperm(len(tokens), generator=drawn(3))
    without = models.replace(query=torch.zeros_like(models.weights["query"]))
    patched = models.stages(tokens, patch={"attention": held["attention"][:, elsewhere]})["logits"]
    torch.testing.assert_close(found["query"], accuracy(without.logits(tokens), targets))
    torch.testing.assert_close(found["attention"], accuracy(patched, targets))
    for t in range(6):
        embeddings = held["embeddings"].clone()
        embeddings[:, :, t] = models.table()[:, :, t].mean(1, keepdim=True)
        logits = models.stages(tokens, patch={"embeddings": embeddings})["logits"]
        torch.testing.assert_close(found["positions"][:, t], accuracy(logits, targets))
    active = torch.nn.functional.gelu(held["activations"])
    for neuron in range(5):
        changed = active.clone()
        changed[..., neuron] = active[..., neuron].mean(1, keepdim=True)
        output = held["sequence"] + changed @ models.weights["assemblers"].mT + models.weights["assembler_bias"].unsqueeze(1)
        logits = output @ models.weights["token"].mT
        torch.testing.assert_close(found["neurons"][:, neuron], accuracy(logits, targets))


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_replacements_are_the_forward_pass_patched(task):
    models, (tokens, targets) = random_models(seed=1, p=task.p), task.all()
    m = torch.tensor([[1, 1, 1, 0, 0, 0], [1, -1, 3, 2, 0, 0], [1, 1, 1, 0, 0, -2]])
    found = replacements(models, task, m, drawn(5))
    held, level = models.stages(tokens)["sequence"], levels(m, task)
    same, other = donors(level, drawn(5))
    for at in range(3):
        means = torch.stack([held[at][level[at] == value].mean(0) for value in level[at]])
        patch = lambda xi: models[at].stages(tokens, patch={"sequence": xi.unsqueeze(0)})["logits"]  # noqa: B023, E731
        wanted = {
            "none": (held[at], targets),
            "mean": (means, targets),
            "rest": (means + (held[at] - means)[other[at]], targets),
            "same": (held[at][same[at]], targets),
            "other": (means[other[at]] + held[at] - means, targets[other[at]]),
            "kept": (means[other[at]] + held[at] - means, targets),
        }
        for name, (xi, answer) in wanted.items():
            torch.testing.assert_close(found[name][at], accuracy(patch(xi), answer)[0], msg=name)


def test_donors_are_of_the_same_and_of_another_level_and_all_are_drawn():
    level = torch.tensor([[0, 0, 0, 1, 1, 2], [4, 4, 4, 4, 4, 4]])
    seen = [set() for _ in range(6)], [set() for _ in range(6)]
    for seed in range(200):
        same, other = donors(level, drawn(seed))
        for at in range(6):
            seen[0][at].add(int(same[0, at]))
            seen[1][at].add(int(other[0, at]))
        assert (other[1] == torch.arange(6)).all()
        assert (same[1] != torch.arange(6)).all()
    assert seen[0] == [{1, 2}, {0, 2}, {0, 1}, {4}, {3}, {5}]
    assert seen[1] == [{3, 4, 5}] * 3 + [{0, 1, 2, 5}] * 2 + [{0, 1, 2, 3, 4}]


@pytest.fixture(scope="module")
def wild():
    """Every intervention on a third of the shipped models, those of seeds drawn anew."""
    seeds = torch.randperm(200)[:66]
    models, task, generator = load_models()[seeds], Task(), drawn(7)

    def of_some(part, _):
        m, explained = part.count(task)
        return {"m": m, "explained": explained} | replacements(part, task, m, generator) | removals(part, task, generator)

    return in_parts(models, of_some)


@pytest.mark.evidence("odonnat-realisations")
def test_the_count_is_what_successful_models_use(wild):
    success = wild["none"] > 0.9
    assert success.sum() > 10
    kept = wild["mean"][success] > wild["none"][success] - 0.01
    assert kept.double().mean() > 0.8  # 86 of 90 in all
    assert wild["other"][success].median() > 0.98
    assert wild["kept"][success].max() < 0.5
    assert (wild["positions"][success, :5] == 0.5).double().mean() > 0.99
    behind, m = wild["positions"][success, 5:], wild["m"][success, 5:]
    assert behind[m == 0].median() == 1
    assert behind[m.abs() == 2].median() < 0.2
    assert wild["query"][success].median() < 0.7


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"weights": torch.zeros(3, 5, dtype=torch.int64)}, ValueError, r"weights must have shape \(M, 6\)"),
        ({"weights": torch.zeros(3, 6)}, TypeError, "weights must be a tensor of integers"),
        ({"generator": 3}, TypeError, "generator"),
        ({"task": Task(3, 6, 3)}, ValueError, "tokens"),
        ({"models": None}, TypeError, "models must be Models"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(change, error, said):
    given = {"models": random_models(), "task": TASK, "weights": torch.ones(3, 6, dtype=torch.int64), "generator": drawn()}
    with pytest.raises(error, match=said):
        replacements(**(given | change))


def test_parts_are_joined_whatever_their_number():
    models = random_models(5)
    whole = replacements(models, TASK, torch.ones(5, 6, dtype=torch.int64), drawn())["none"]
    for size in (1, 2, 5, 9):
        begun = []

        def of_some(part, at, begun=begun):
            begun.append(at)
            return {"none": accuracy(part.logits(TASK.all()[0]), TASK.all()[1])}

        torch.testing.assert_close(in_parts(models, of_some, size)["none"], whole)
        assert begun == list(range(0, 5, size))
    with pytest.raises(TypeError, match="models must be Models"):
        in_parts([models], dict)
    with pytest.raises(ValueError, match="size"):
        in_parts(models, dict, 0)


def test_what_does_not_fit_a_task_or_a_generator_is_refused():
    with pytest.raises(ValueError, match="task must have length 6"):
        removals(random_models(), Task(2, 7, 3), drawn())
    with pytest.raises(TypeError, match="generator"):
        removals(random_models(), TASK, None)
    with pytest.raises(TypeError, match="generator"):
        donors(torch.zeros(1, 4, dtype=torch.int64), None)
