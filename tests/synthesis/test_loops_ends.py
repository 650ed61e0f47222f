"""The experiment on where flows of full matrices end: its landscape and its rule."""

import loops_ends
import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from attnbook.folder import results
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


@pytest.mark.evidence("book-loops-matrices")
def test_what_is_stored_is_what_the_rule_says():
    stored = results("loops_ends")
    runs = stored["ends"]["runs"]
    assert loops_ends.judged(runs) == stored["ends"]["verdict"] == "detour"
    assert [number for number, run in enumerate(runs) if run["end"] > 0.01] == [
        one["seed"] - 2000 for one in stored["traps"]
    ]


@pytest.mark.evidence("book-loops-matrices")
def test_a_local_minimum_that_is_not_a_multiple_is_found_again():
    """Descent from near where seed 2028 ended leads back there: no direction leads down from it."""
    landscape = loops_ends.Landscape(2, 100, 6)
    start = [[-1.053, 0.06, -0.003, -1.019], [-0.769, 0.083, 0.031, -0.739], [-0.927, -0.371, -0.46, -1.1]]
    start += [[-1.022, 0.443, 0.339, -0.917], [-0.766, -0.014, -0.074, -0.787], [-1.209, 0.017, -0.095, -1.202]]
    scale = 1e7  # the loss is of the order of 1e-7
    found = minimize(
        lambda flat: scale * landscape.loss(flat), np.array(start).ravel(), method="trust-exact",
        jac=lambda flat: scale * landscape.gradient(flat), hess=lambda flat: scale * landscape.hessian(flat),
        options={"gtol": 1e-9},
    )  # fmt: skip
    assert found.fun / scale / float(optimal_step_sizes(2, 100, 6)[1]) - 1 == pytest.approx(0.73909, abs=1e-4)
    assert np.linalg.norm(landscape.gradient(found.x)) < 1e-15
    least, *others = np.linalg.eigvalsh(landscape.hessian(found.x))
    assert abs(least) < 1e-14
    assert min(others) > 1e-7
