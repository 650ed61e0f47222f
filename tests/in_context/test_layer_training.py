"""Training of plain layers in their step sizes: where gradient flow on the exact loss ends, and what holds it up."""

import itertools

import numpy as np
import pytest
import torch

from attnbook.explorers import LayerTrainingExplorer
from attnopt.in_context import optimal_step_sizes, step_loss

SIZES = [(1, 2), (1, 40), (2, 5), (5, 2), (5, 20), (10, 5), (10, 100)]


def derivatives(sizes, dim, n_context):
    """Minus the gradient of the loss in the sizes, and its Hessian, by automatic differentiation."""
    sizes = torch.tensor(sizes, dtype=torch.float64)
    loss = lambda s: step_loss(-s, dim, n_context)  # noqa: E731
    return -torch.func.grad(loss)(sizes).numpy(), torch.func.hessian(loss)(sizes).numpy()


@pytest.mark.parametrize(("dim", "n_context"), SIZES)
def test_training_from_different_starts_ends_at_the_optimal_steps_in_the_order_of_the_starts(dim, n_context):
    generator = np.random.default_rng(dim * n_context)
    for layers, kind in itertools.product((2, 3, 4), ("far", "far", "close", "pair")):
        starts = generator.uniform(-1, 3, 4)
        if kind == "close":
            starts = 0.9 * starts[0] + np.array([0, 1e-3, -1e-3, 2e-3])
        if kind == "pair":
            starts[1] = starts[0] - 1e-3 if starts[0] > 0 else starts[0] + 1e-3
        explorer = LayerTrainingExplorer(dim=dim, n_context=n_context, layers=layers, starts=starts.tolist())
        numbers = explorer.compute()
        way, losses = np.array(numbers["sizes"]), np.array(numbers["losses"])
        order = np.argsort(starts[:layers])
        assert (np.diff(way[order], axis=0) > 0).all()  # at every time
        best, least = optimal_step_sizes(dim, n_context, layers)
        np.testing.assert_allclose(way[order, -1], -best.numpy(), rtol=1e-5)
        assert losses[-1] == pytest.approx(float(least), rel=1e-6)
        assert (np.diff(losses) <= 1e-7 * losses[1:]).all()


@pytest.mark.parametrize(("dim", "n_context"), SIZES)
def test_the_way_of_training_follows_the_gradient_of_the_exact_loss(dim, n_context):
    for tied in (False, True):
        traits = {"dim": dim, "n_context": n_context, "layers": 3, "tied": tied, "starts": [0.4, -0.1, 0.9, 0.0]}
        numbers = LayerTrainingExplorer(**traits).compute()
        times, way = np.array(numbers["times"]), np.array(numbers["sizes"]).T
        stretched = np.log1p(times * dim / 0.1)  # evenly spaced
        for at in (10, 25, 40, 60):
            found = (8 * (way[at + 1] - way[at - 1]) - (way[at + 2] - way[at - 2])) / 12 / (stretched[1] - stretched[0])
            wanted = derivatives(way[at], dim, n_context)[0] * (times[at] + 0.1 / dim)
            if tied:
                wanted = wanted.sum() * np.ones(3)
            np.testing.assert_allclose(found, wanted, rtol=0.02, atol=0.01)
            assert numbers["losses"][at] == pytest.approx(step_loss(-way[at], dim, n_context).item(), rel=1e-7)


@pytest.mark.parametrize(("dim", "n_context"), SIZES)
def test_equal_layers_stay_equal_and_end_at_a_saddle_whose_rate_is_known(dim, n_context):
    for layers in (2, 3, 4):
        traits = {"dim": dim, "n_context": n_context, "layers": layers, "starts": [0.3] * 4}
        free, tied = (LayerTrainingExplorer(**traits, tied=tied).compute() for tied in (False, True))
        for numbers in (free, tied):
            way = np.array(numbers["sizes"])
            assert (way == way[0]).all()
            assert way[0, -1] == pytest.approx(free["equal"], rel=1e-5)
        assert free["losses"][-1] == pytest.approx(free["level"], rel=1e-8)
        assert free["level"] > free["floor"]
        slope, hessian = derivatives([free["equal"]] * layers, dim, n_context)
        values = np.linalg.eigvalsh(hessian)
        assert np.abs(slope).max() < 1e-4 * values[-1]
        np.testing.assert_allclose(values[:-1], -free["rate"], rtol=1e-3)  # every difference of two layers
        assert values[-1] > 0


def test_a_tenth_of_the_difference_makes_the_plateau_longer_by_log_10_over_its_rate():
    def leaves(difference):
        numbers = LayerTrainingExplorer(starts=[0.3, 0.3 + difference, 0.0, 0.0]).compute()
        gap = np.diff(np.array(numbers["sizes"]), axis=0)[0]
        return np.interp(np.log(0.1), np.log(gap), numbers["times"]), numbers["rate"]

    (early, rate), (late, _), (latest, _) = (leaves(difference) for difference in (1e-4, 1e-5, 1e-6))
    assert latest - late == pytest.approx(np.log(10) / rate, rel=0.02)
    assert late - early == pytest.approx(np.log(10) / rate, rel=0.02)
    assert np.log(10) / rate == pytest.approx(0.96, abs=0.005)  # the tour of the explorer says it
