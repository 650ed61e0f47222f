"""The explorer of step sizes in the built page: Python's numbers, and a readout that says what is drawn."""

import numpy as np
import pytest
from explorer_pages import STEP_SIZES, assert_same, in_page, mounted, status

from attnopt.explorers import StepSizesExplorer


def test_module_computes_what_python_computes(open_page):
    page = open_page(STEP_SIZES, alone=True)
    rng = np.random.default_rng(0)
    for number in range(24):
        explorer = StepSizesExplorer(
            dim=int(rng.choice((1, 2, 5, 10))),
            n_context=int(rng.choice((1, 2, 5, 10, 20, 40, 100))),
            layers=int(rng.integers(1, 5)),
            scheme=("optimal", "constant", "chebyshev", "own")[number % 4],
            own=rng.uniform(0.02, 3, 4).tolist(),
        )
        assert_same(explorer.compute(), in_page(page, "step_sizes", explorer.state()), atol=1e-11)


def test_readout_says_loss_optimum_and_steps(open_page):
    page = open_page(STEP_SIZES, alone=True)
    explorer = mounted(page)
    for label, scheme in (("optimal", "optimal"), ("best equal", "constant"), ("Chebyshev", "chebyshev")):
        explorer.get_by_role("radio", name=label).check()
        numbers = StepSizesExplorer(scheme=scheme).compute()
        assert f"{label} steps of size {', '.join(f'{size:.3f}' for size in numbers['sizes'])}" in status(explorer)
        assert f"loss {numbers['loss']:.4g}," in status(explorer)
        assert ("That is the optimum" in status(explorer)) == (scheme == "optimal")
    explorer.get_by_role("radio", name="optimal").check()
    assert "2.672 % of the loss" in status(explorer)


def test_moving_a_step_takes_it_from_the_optimum_and_the_loss_rises(open_page):
    page = open_page(STEP_SIZES, alone=True)
    explorer = mounted(page)
    slider = explorer.get_by_role("slider", name="size of step 2")
    before = slider.get_attribute("aria-valuetext")
    for _ in range(3):
        slider.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") != before
    assert explorer.get_by_role("radio", name="own").is_checked()
    assert "% above" in status(explorer)
    assert "own steps of size 0.422," in status(explorer)  # the others stayed
    explorer.get_by_role("slider", name="layers").press("Home")
    assert explorer.get_by_role("slider", name="size of step 2").count() == 0
    explorer.get_by_role("slider", name="examples n").press("Home")
    assert "No steps come below 4" in status(explorer)
    assert page.complaints == []


@pytest.mark.parametrize("end", ["Home", "End"])
def test_extremes_stay_finite(end, open_page):
    page = open_page(STEP_SIZES, alone=True)
    explorer = mounted(page)
    for dim in ("1", "10"):
        explorer.get_by_role("radio", name=dim, exact=True).check()
        for name in ("examples n", *(f"size of step {number}" for number in range(1, 5)), "layers"):
            explorer.get_by_role("slider", name="layers").press("End")  # so that all four steps have a slider
            explorer.get_by_role("slider", name=name).press(end)
            assert "NaN" not in explorer.inner_html()
            assert "Infinity" not in explorer.inner_html()
    assert page.complaints == []
