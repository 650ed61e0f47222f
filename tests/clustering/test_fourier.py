"""What the experiment on counts and Fourier features computes, on functions whose shares are known."""

import json

import fourier as script
import numpy as np
import pytest
import torch
from lab import RESULTS

from attnopt.clustering import Task


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


def test_the_stored_result_is_of_the_settings_said():
    stored = json.loads((RESULTS / "fourier.json").read_text(encoding="utf-8"))["settings"]
    assert [(entry["p"], entry["length"], entry["k"]) for entry in stored] == list(script.SETTINGS)
    for entry in stored:
        assert entry["success"][1] == script.RUNS
        for part in entry["shares"].values():
            for middle, low, high in part:
                assert -1e-9 <= low <= middle <= high <= 1 + 1e-9
