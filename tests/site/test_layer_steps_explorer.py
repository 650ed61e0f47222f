"""The explorer of layers as steps in the built page: the same numbers as Python's, and a readout that says what is drawn."""

import numpy as np
import pytest
from explorer_pages import STEPS, assert_same, in_page, mounted, status

from attnopt.explorers import LayerStepsExplorer

METHODS = ("plain", "covariance", "optimal", "newton")


@pytest.mark.parametrize("method", METHODS)
def test_layer_steps_module_computes_what_python_computes(method, open_page):
    page = open_page(STEPS, alone=True)
    rng = np.random.default_rng(0)
    for layers in range(1, 9):
        explorer = LayerStepsExplorer(
            method=method,
            layers=layers,
            step=float(rng.uniform(0.05, 2)),
            conditioning=float((1, 30, rng.uniform(1, 30))[layers % 3]),
            prompt=layers % 3,
        )
        assert_same(explorer.compute(), in_page(page, "layer_steps", explorer.state()), rtol=1e-6)


def test_layer_steps_show_their_numbers(open_page):
    page = open_page(STEPS, alone=True)
    explorer = mounted(page)
    for label, method in zip(("−γ I", "−γ Σ⁻¹", "optimal steps times Σ⁻¹", "−γ H⁻¹ (Newton)"), METHODS, strict=True):
        explorer.get_by_role("radio", name=label, exact=True).check()
        numbers = LayerStepsExplorer(method=method).compute()
        assert status(explorer).startswith(f"{label}, 5 layers: excess error {numbers['errors'][method][0]:.3f} at first")
        assert f"condition number {numbers['condition']:.1f}" in status(explorer)
        rises = [i for i in range(1, 6) if numbers["losses"][i] > numbers["losses"][i - 1] * (1 + 1e-9)]
        assert (f"Layer {rises[0]} is the first" if rises else "No layer raised") in status(explorer)
    explorer.get_by_role("radio", name="3").check()
    for name in ("layers", "step γ", "conditioning"):
        before = status(explorer)
        explorer.get_by_role("slider", name=name).press("End")
        assert status(explorer) != before
    assert "8 layers" in status(explorer)
    explorer.get_by_role("radio", name="−γ I", exact=True).check()
    for text in ("NaN", "Infinity"):
        assert text not in explorer.inner_html()
    assert page.complaints == []
