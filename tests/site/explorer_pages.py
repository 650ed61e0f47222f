"""What the tests of explorers in the built page share: the pages, and how to find, ask and compare an explorer."""

import numpy as np

SOFTMAX, FIELD = "regression/softmax_and_lse.html", "regression/attention_is_a_gradient.html"
FLOWS, LAYERS = "regression/feature_flows.html", "regression/flows_become_layers.html"
ONE_LAYER = "in_context/one_layer_one_step.html"
STEPS = "in_context/layers_are_steps.html"
STEP_SIZES = "in_context/optimal_step_sizes.html"
GDPP = "in_context/beyond_gradient_descent.html"
TASK = "clustering/task_and_model.html"
CIRCUIT = "clustering/ideal_circuit.html"
BOUND = "clustering/gradients_and_bound.html"
IMAGES, SANDBOX = "regression/fashion_mnist.html", "clustering/two_phase_learning.html"
PAGES = [SOFTMAX, FIELD, FLOWS, LAYERS, ONE_LAYER, STEPS, STEP_SIZES, GDPP, TASK, CIRCUIT, BOUND]


def mounted(page):
    """The explorer of a page, once its module has drawn it."""
    explorer = page.locator("div.attnopt-explorer[data-mounted]")
    explorer.wait_for()
    explorer.scroll_into_view_if_needed()
    return explorer


def in_page(page, module, state):
    """What the module's own `compute` returns in the page."""
    return page.evaluate("async ([module, state]) => (await attnopt.load(module)).compute(state)", [module, state])


def status(explorer):
    return explorer.get_by_role("status").inner_text()


def assert_same(here, there, rtol=1e-9, atol=1e-9):
    """Python's result and the page's: equal keys, close numbers of the same shape, None beside None."""
    if isinstance(here, dict):
        assert set(here) == set(there)
        for name, value in here.items():
            assert_same(value, there[name], rtol, atol)
        return
    mine, theirs = np.array(here, dtype=float), np.array(there, dtype=float)  # None becomes NaN
    assert mine.shape == theirs.shape
    np.testing.assert_allclose(theirs, mine, rtol=rtol, atol=atol, equal_nan=True)
