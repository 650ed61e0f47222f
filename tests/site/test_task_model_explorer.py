"""The explorer of the task and the model in the built page: the same numbers as Python's, and buttons that act."""

import numpy as np
import pytest
from explorer_pages import TASK, assert_same, in_page, mounted, status

from attnopt.explorers import TaskModelExplorer


@pytest.mark.parametrize("model", ["random", "ideal"])
def test_task_model_module_computes_what_python_computes(model, open_page):
    page = open_page(TASK, alone=True)
    rng = np.random.default_rng(0)
    for number in range(12):
        explorer = TaskModelExplorer(
            tokens=rng.integers(0, 2, 12).tolist(),
            model=model,
            query_scale=float(rng.uniform(0, 3)),
            value_scale=float(rng.uniform(-2, 2)) if number else 0.0,
            neuron_scale=float(rng.uniform(0, 2)),
        )
        assert_same(explorer.compute(), in_page(page, "task_model", explorer.state()))


def test_task_model_buttons_change_tokens_by_mouse_and_keyboard(open_page):
    page = open_page(TASK, alone=True)
    explorer = mounted(page)
    tokens = list(TaskModelExplorer().tokens)
    for position, by_key in ((0, False), (4, True), (11, False), (6, True)):
        button = explorer.get_by_role("button", name=f"token {position + 1}", exact=True)
        assert button.get_attribute("aria-pressed") == str(tokens[position] == 1).lower()
        if by_key:
            button.focus()
            button.press("Space")
        else:
            button.click()
        tokens[position] = 1 - tokens[position]
        numbers = TaskModelExplorer(tokens=tokens).compute()
        assert f"Label {numbers['label']}:" in status(explorer)
        assert f"probability {numbers['probabilities'][1]:.4f}" in status(explorer)
        assert f"prefix {100 * sum(numbers['attention'][:5]):.2f} %" in status(explorer)
    explorer.get_by_role("button", name="rotate the prefix").click()
    tokens = [tokens[4], *tokens[:4], *tokens[5:]]
    explorer.get_by_role("button", name="flip the suffix").press("Enter")
    tokens = [*tokens[:5], *(1 - x for x in tokens[5:])]
    shown = [explorer.get_by_role("button", name=f"token {t}", exact=True).inner_text() for t in range(1, 13)]
    assert shown == [str(x) for x in tokens]
    assert f"probability {TaskModelExplorer(tokens=tokens).compute()['probabilities'][1]:.4f}" in status(explorer)
    assert page.complaints == []


def test_task_model_built_by_hand_is_right_whatever_the_suffix(open_page):
    page = open_page(TASK, alone=True)
    explorer = mounted(page)
    explorer.get_by_role("radio", name="built by hand").check()
    for name in ("rotate the prefix", "flip the suffix", "token 2", "token 9"):
        explorer.get_by_role("button", name=name, exact=True).click()
        assert "so the model is right" in status(explorer)
        assert "Attention on the prefix 99.95 %" in status(explorer)
    explorer.get_by_role("slider", name="factor of q").press("Home")
    assert "Attention on the prefix 41.67 %" in status(explorer)
    explorer.get_by_role("slider", name="factor of V").fill("0")
    assert "length 0.000" in status(explorer)
    assert "so the model is undecided" in status(explorer)
    assert "NaN" not in explorer.inner_html()
    assert page.complaints == []


def test_task_model_fits_a_phone(open_page):
    page = open_page(TASK, width=390, mathematics=False)
    explorer = mounted(page)
    for button in explorer.get_by_role("button").all():
        box = button.bounding_box()
        assert min(box["width"], box["height"]) >= 24
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
