"""The explorer of one optimal layer in the built page: the same numbers as Python's, and a readout that says them."""

import numpy as np
from explorer_pages import ONE_LAYER, assert_same, in_page, mounted, status

from attnopt.explorers import OneLayerExplorer


def test_one_layer_module_computes_what_python_computes(open_page):
    page = open_page(ONE_LAYER, alone=True)
    rng = np.random.default_rng(0)
    for examples in (1, 2, 7, 40, 333, 1000):
        first, second, third = (10 ** rng.uniform(-2, 1, 3)).tolist()
        explorer = OneLayerExplorer(first=first, second=second, third=third, examples=examples)
        assert_same(explorer.compute(), in_page(page, "one_layer", explorer.state()), rtol=1e-6, atol=1e-7)


def test_one_layer_says_which_preconditioner_is_ahead(open_page):
    page = open_page(ONE_LAYER, alone=True)
    explorer = mounted(page)
    for key, n in (("Home", 1), ("End", 1000)):
        explorer.get_by_role("slider", name="examples n").press(key)
        losses = OneLayerExplorer(examples=n).compute()["losses"]
        assert ("Σ⁻¹ beats I" if losses["newton"] < losses["plain"] else "I beats Σ⁻¹") in status(explorer)
        assert f"{losses['optimal']:.3g} for the optimal layer" in status(explorer)
    for name in ("eigenvalue 1", "eigenvalue 2", "eigenvalue 3"):
        explorer.get_by_role("slider", name=name).press("Home")
    assert "Σ⁻¹ and I do as well" in status(explorer)  # Σ = 0.01 I
    assert "NaN" not in explorer.inner_html()
    assert page.complaints == []
