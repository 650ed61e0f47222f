"""The explorers of flows and layers in the built page: the same numbers as Python's, and readouts that say what is drawn."""

import numpy as np
import pytest
from explorer_pages import FLOWS, LAYERS, assert_same, in_page, mounted, status

from attnopt.explorers import FeatureFlowExplorer, LayersExplorer


@pytest.mark.parametrize("model", ["linear", "quadratic"])
def test_feature_flow_module_computes_what_python_computes(model, open_page):
    page = open_page(FLOWS, alone=True)
    rng = np.random.default_rng(0)
    for number in range(8):
        state = {
            "model": model,
            "formula": ("true", "printed")[number % 2],
            "label": number % 3,
            "exchanged": number // 2 % 2 == 1,
            "softness": float((0, 1, rng.uniform())[number % 3]),
            "time": float(40 * rng.uniform() ** 2),
        }
        starts = rng.uniform(-2.9, 2.9, (3, 2))
        explorer = FeatureFlowExplorer(**state, starts=starts.tolist())
        here, there = explorer.compute(), in_page(page, "feature_flow", explorer.state())
        # Where tokens coalesce, a flow may magnify a difference ten thousand times, and so the error of either integrator:
        # the two must agree as far as the result is determined by starts known to ten times the integrators' tolerance.
        moved = [starts + change for change in 1e-9 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [1, 1], [1, -1]])]
        others = [FeatureFlowExplorer(**state, starts=other.tolist()).compute() for other in moved]
        assert set(here) == set(there)
        for name in here:
            mine, theirs = np.array(here[name], float), np.array(there[name], float)
            open_to = np.max([np.abs(np.array(other[name], float) - mine) for other in others], axis=0)
            assert np.max(open_to) < 1e-3  # what is not determined at all is no test
            assert (np.abs(theirs - mine) <= 1e-7 + 1e-6 * np.abs(mine) + open_to).all(), name


@pytest.mark.parametrize("model", ["linear", "quadratic"])
def test_layers_module_computes_what_python_computes(model, open_page):
    page = open_page(LAYERS, alone=True)
    rng = np.random.default_rng(0)
    for number in range(8):
        scale = float(rng.uniform(0.5, 3))
        explorer = LayersExplorer(
            model=model,
            scheme=("euler", "printed", "lie", "strang")[number % 4],
            step=float(rng.uniform(0.05, 1 / scale)),  # longer steps of many layers may be chaotic
            layers=int(rng.integers(1, 25)),
            scale=scale,
        )
        assert_same(explorer.compute(), in_page(page, "layers", explorer.state()), rtol=1e-6, atol=1e-7)
    beyond = LayersExplorer(model=model, scheme="strang", step=4.0, layers=3, scale=3.0)
    assert_same(beyond.compute(), in_page(page, "layers", beyond.state()), rtol=1e-6, atol=1e-7)


def test_feature_flow_shows_its_numbers_and_who_climbs(open_page):
    page = open_page(FLOWS, alone=True)
    explorer = mounted(page)
    assert explorer.get_by_role("radio", name="as printed").is_disabled()
    explorer.get_by_role("radio", name="quadratic").check()
    for label, formula in (("gradient", "true"), ("as printed", "printed")):
        explorer.get_by_role("radio", name=label).check()
        numbers = FeatureFlowExplorer(model="quadratic", formula=formula).compute()
        for index, value in enumerate(numbers["now_losses"]):
            assert f"{value:.3f} from start {index + 1}" in status(explorer)
        assert ("risen from start 2" in status(explorer)) == (formula == "printed")
    before = status(explorer)
    explorer.get_by_role("radio", name="exchanged").check()
    assert status(explorer) != before
    assert "infimum 1.386" in status(explorer)
    explorer.get_by_role("radio", name="3").check()
    assert "Start 3" in status(explorer)
    explorer.get_by_role("slider", name="time").press("End")
    assert "time 40.00" in status(explorer)
    assert page.complaints == []


def test_layers_show_their_numbers_and_the_first_that_climbs(open_page):
    page = open_page(LAYERS, alone=True)
    explorer = mounted(page)
    start = LayersExplorer().state()
    for model in ("linear", "quadratic"):
        explorer.get_by_role("radio", name=model).check()
        for label, scheme in (("Euler", "euler"), ("printed", "printed"), ("Lie", "lie"), ("Strang", "strang")):
            explorer.get_by_role("radio", name=label).check()
            losses = LayersExplorer(**start | {"model": model, "scheme": scheme}).compute()["losses"]
            assert status(explorer).startswith(f"{label}, 12 layers")
            assert f"cross-entropy {losses[-1]:.3f}; exact" in status(explorer)
            rises = [layer for layer in range(1, 13) if losses[layer] > losses[layer - 1] + 1e-9 * (1 + losses[layer])]
            assert (f"Layer {rises[0]} is the first" if rises else "No layer raised") in status(explorer)
    for name in ("step", "scale of θ", "layers"):
        explorer.get_by_role("slider", name=name).press("End")
    assert "beyond a million" in status(explorer)
    assert "NaN" not in explorer.inner_html()
    assert "Infinity" not in explorer.inner_html()
    assert page.complaints == []
