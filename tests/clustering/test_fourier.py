"""What the experiment on counts and Fourier features computes, on functions whose shares are known."""

import json

import fourier as script
import numpy as np
import pytest
import torch
from lab import RESULTS

from attnopt.clustering import Models, Task

TURNS = 2 * torch.pi


def circle(angle):
    return torch.stack([angle.cos(), angle.sin()], -1)


@pytest.mark.parametrize("p", [3, 5, 7])
def test_the_direction_of_a_mean_of_two_points_of_a_circle_is_half_the_sum_of_their_angles(p):
    task = Task(p, 2, 2)
    tokens = task.all()[0]
    xi = circle(TURNS * torch.arange(p, dtype=torch.float64) / p)[tokens].mean(1)
    assert script.shares(xi, tokens, task) == pytest.approx([1, 1, 0], abs=1e-12)
    angle = torch.atan2(xi[:, 1], xi[:, 0])
    additive, counts, of_sum = script.shares(circle(2 * angle), tokens, task)
    assert additive < 1e-12
    assert counts == pytest.approx(1)
    assert of_sum == pytest.approx(1)
    line, pure = script.arrangement(xi, tokens, task)
    assert line == pytest.approx(0.5)
    assert pure == pytest.approx(1)


@pytest.mark.parametrize(("p", "length", "k"), [(2, 6, 3), (3, 4, 2), (5, 3, 3)])
def test_shares_are_those_of_a_regression_on_indicators(p, length, k):
    task = Task(p, length, k)
    tokens = task.all()[0]
    generator = np.random.default_rng(5)
    points = generator.normal(size=(task.size, 2)) + tokens.numpy()[:, :2] + (task.labels(tokens).numpy() == 1)[:, None]
    digits = (tokens[:, :k].numpy()[..., None] == np.arange(p)).sum(1)
    features = [
        np.concatenate([tokens.numpy() == value for value in range(p)], 1).astype(float),
        np.array([(digits == row).all(1) for row in np.unique(digits, axis=0)]).T.astype(float),
        np.eye(p)[task.labels(tokens).numpy()],
    ]
    centred = points - points.mean(0)
    left = [np.linalg.lstsq(np.c_[one, np.ones(task.size)], centred, rcond=None) for one in features]
    fits = [np.c_[one, np.ones(task.size)] @ found[0] for one, found in zip(features, left, strict=True)]
    expected = [(fit**2).sum() / (centred**2).sum() for fit in fits]
    assert script.shares(torch.tensor(points), tokens, task) == pytest.approx(expected, abs=1e-9)


def test_sums_of_functions_of_one_token_know_nothing_of_the_sum():
    task = Task(5, 4, 2)
    tokens = task.all()[0]
    effects = torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    points = sum(effects[t][tokens[:, t]] for t in range(4))
    additive, _, of_sum = script.shares(points, tokens, task)
    assert additive == pytest.approx(1)
    assert of_sum < 1e-12


def test_equal_steps_on_a_line_have_their_share_at_one_frequency():
    task = Task(5, 2, 2)
    tokens = task.all()[0]
    line, pure = script.arrangement(tokens.sum(1, keepdim=True).double(), tokens, task)
    assert line == pytest.approx(1)
    assert pure == pytest.approx(0.7236, abs=1e-4)  # 1/sin² of 36 degrees over that and 1/sin² of 72


def test_stages_are_the_models():
    task = Task(3, 3, 2)
    tokens = task.all()[0]
    model = Models.random(1, 3, 3, 2, 8, norm="rms", biases=True, generator=torch.Generator().manual_seed(2)).double()
    found = script.stages(model, tokens, 3)
    assert list(found) == ["ξ", "turned 1", "turned 2", "turned 3", "before", "after", "logits"]
    direction = model.sequences(tokens)[0]
    torch.testing.assert_close(found["turned 1"], direction / direction.norm(dim=1, keepdim=True))
    first, second = found["turned 1"].T
    torch.testing.assert_close(found["turned 2"], torch.stack([first**2 - second**2, 2 * first * second], 1))
    torch.testing.assert_close(found["logits"].sum(1), torch.zeros(27, dtype=torch.float64), atol=1e-9, rtol=0)


def test_the_stored_result_is_of_the_settings_said():
    stored = json.loads((RESULTS / "fourier.json").read_text(encoding="utf-8"))["settings"]
    assert [(entry["p"], entry["length"], entry["k"]) for entry in stored] == list(script.SETTINGS)
    for entry in stored:
        assert entry["success"][1] == script.RUNS
        for part in entry["shares"].values():
            for middle, low, high in part:
                assert -1e-9 <= low <= middle <= high <= 1 + 1e-9
