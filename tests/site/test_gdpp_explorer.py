"""The explorer of GD++ in the built page: the same numbers as Python's, and a readout that says what is drawn."""

import itertools

import numpy as np
import pytest
from explorer_pages import GDPP, in_page, mounted, status

from attnopt.explorers import GdppExplorer


def assert_same(here, there):
    """Equal keys, numbers equal to a millionth, None beside None."""
    if isinstance(here, dict):
        assert set(here) == set(there)
        for name, value in here.items():
            assert_same(value, there[name])
        return
    mine, theirs = np.array(here, dtype=float), np.array(there, dtype=float)
    np.testing.assert_allclose(theirs, mine, rtol=1e-6, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("context", [3, 20, 100])
def test_module_computes_what_python_computes(context, open_page):
    page = open_page(GDPP, mathematics=False)
    for layers, scale in itertools.product((1, 2, 3, 4), (0.5, 1.0, 1.31, 1.5)):
        explorer = GdppExplorer(context=context, layers=layers, scale=scale)
        assert_same(explorer.compute(), in_page(page, "gdpp", explorer.state()))


def test_readout_says_what_is_drawn(open_page):
    page = open_page(GDPP, mathematics=False)
    explorer = mounted(page)
    losses = GdppExplorer().compute()["losses"]
    assert f"GD++ {losses['gdpp'][2]:.3g}" in status(explorer)
    assert f"optimal steps {losses['plain'][2]:.3g}" in status(explorer)
    assert "All better than predicting 0" in status(explorer)
    explorer.get_by_role("slider", name="scale s").fill("1.2")
    assert "Worse than predicting 0: GD++." in status(explorer)
    explorer.get_by_role("radio", name="eigenvalues in GD++").check()
    assert explorer.get_by_text("eigenvalue / largest").count() == 1
    for name, end in itertools.product(("examples n", "layers k", "scale s"), ("Home", "End")):
        explorer.get_by_role("slider", name=name).press(end)
        assert "NaN" not in explorer.inner_html()
        assert "Infinity" not in explorer.inner_html()
    assert "n = 100, 4 layers, covariates times 1.50" in status(explorer)
    assert page.complaints == []
