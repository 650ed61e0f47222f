"""The experiment on where flows of full matrices end: its landscape and its rule."""

import loops_ends
import numpy as np
import pytest
import torch

from attnopt.in_context import optimal_step_sizes
from attnopt.synthesis import tied_optimum


def test_the_landscape_is_that_of_prompts():
    """The loss is the mean over sampled prompts, and its derivatives are those of differences."""
    landscape, rng = loops_ends.Landscape(2, 6, 3), np.random.default_rng(0)
    flat = 0.2 * rng.standard_normal(12)
    draws = torch.randn(400_000, 2, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    grams, left = draws @ draws.mT / 6, torch.eye(2, dtype=torch.float64)
    for layer in torch.from_numpy(flat).reshape(3, 2, 2):
        left = left @ (torch.eye(2, dtype=torch.float64) + grams @ layer)
    values = left.square().sum((-1, -2))
    assert landscape.loss(flat) == pytest.approx(values.mean().item(), abs=4 * values.std().item() / 400_000**0.5)
    step = 1e-6 * np.eye(12)
    slopes = [(landscape.loss(flat + e) - landscape.loss(flat - e)) / 2e-6 for e in step]
    np.testing.assert_allclose(landscape.gradient(flat), slopes, atol=1e-7)
    bends = [(landscape.gradient(flat + e) - landscape.gradient(flat - e)) / 2e-6 for e in step]
    np.testing.assert_allclose(landscape.hessian(flat), bends, atol=1e-6)


def test_it_rests_at_the_best_multiples_and_not_at_the_best_loop():
    landscape = loops_ends.Landscape(2, 10, 2)
    steps, _ = optimal_step_sizes(2, 10, 2)
    best = (steps.double()[:, None, None] * torch.eye(2, dtype=torch.float64)).numpy().ravel()
    assert landscape.rests(best) < 0
    loop = np.full(2, tied_optimum(2, 10, 2)[0])
    saddle = (loop[:, None, None] * np.eye(2)).ravel()
    assert np.linalg.norm(landscape.gradient(saddle)) < loops_ends.STILL
    assert landscape.rests(saddle) > 0


def test_a_flow_of_two_layers_ends_at_the_best_multiples():
    found = loops_ends.ended((2, 10, 2), 2999)
    assert found["rests"]
    assert abs(found["end"]) < 1e-6
    assert found["left"][0] == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(("bad", "verdict"), [(0, "detour"), (5, "detour"), (6, None), (19, None), (20, "trap")])
def test_the_rule(bad, verdict):
    made = [{"end": 0.5 if at < bad else -1e-9, "rests": True} for at in range(100)]
    assert loops_ends.judged(made) == verdict
