"""The explorer of GD++ in the built page: the same numbers as Python's, and a readout that says what is drawn."""

import itertools

import pytest
from explorer_pages import GDPP, assert_same, in_page, mounted, status

from attnopt.explorers import GdppExplorer


@pytest.mark.parametrize("context", [3, 20, 100])
def test_module_computes_what_python_computes(context, open_page):
    page = open_page(GDPP, alone=True)
    for layers, scale in itertools.product((1, 2, 3, 4), (0.5, 1.0, 1.31, 1.5)):
        explorer = GdppExplorer(context=context, layers=layers, scale=scale)
        assert_same(explorer.compute(), in_page(page, "gdpp", explorer.state()), rtol=1e-6)


def test_readout_says_what_is_drawn(open_page):
    page = open_page(GDPP, alone=True)
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
