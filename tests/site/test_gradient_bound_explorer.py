"""The explorer of the gradient bounds in the built page: the same numbers as Python's, and a readout that says them."""

import numpy as np
from explorer_pages import BOUND, assert_same, in_page, mounted, status

from attnopt.explorers import GradientBoundExplorer

SCALES = ("value", "receptors", "assemblers", "logits")


def test_module_computes_what_python_computes(open_page):
    page = open_page(BOUND, alone=True)
    rng = np.random.default_rng(0)
    for number in range(16):
        scales = {name: float(10 ** rng.uniform(-3, 1)) for name in SCALES}
        if number < 2:
            scales = dict.fromkeys(SCALES, (0.001, 10.0)[number])
        explorer = GradientBoundExplorer(model=("solved", "initial")[number // 2 % 2], along=SCALES[number // 4], **scales)
        assert_same(explorer.compute(), in_page(page, "gradient_bound", explorer.state()), rtol=1e-6, atol=1e-12)


def test_readout_says_what_is_drawn_and_what_is_broken(open_page):
    page = open_page(BOUND, alone=True)
    explorer = mounted(page)
    assert "16 of 16 sequences correct" in status(explorer)
    assert "No printed term is broken." in status(explorer)
    explorer.get_by_role("slider", name="factor of V").press("Home")
    assert "printed bound" in status(explorer)
    assert ", broken. Broken term by term for query and value." in status(explorer)
    explorer.get_by_role("radio", name="initial").check()
    correct = GradientBoundExplorer(model="initial", value=0.001).compute()["correct"]
    assert status(explorer).startswith(f"{correct} of 16 sequences correct")
    before = status(explorer)
    explorer.get_by_role("slider", name="factor of U").press("ArrowLeft")
    assert status(explorer) != before
    for name in ("factor of V", "factor of W", "factor of U", "factor of logits"):
        explorer.get_by_role("slider", name=name).press("End")
    for along in ("V", "W", "U", "logits"):
        explorer.get_by_role("group", name="curves over").get_by_role("radio", name=along, exact=True).check()
    assert "NaN" not in explorer.inner_html()
    assert "Infinity" not in explorer.inner_html()
    assert page.complaints == []
