"""Explorers in the built page, without a kernel: they compute what Python computes, and answer mouse and keyboard."""

import numpy as np
import pytest
from explorer_pages import FIELD, FLOWS, IMAGES, PAGES, SANDBOX, SOFTMAX, assert_same, in_page, mounted, status

from attnopt.explorers import AttentionFieldExplorer, SoftmaxExplorer


def test_softmax_module_computes_what_python_computes(open_page):
    page = open_page(SOFTMAX, alone=True)
    rng = np.random.default_rng(0)
    for _ in range(40):
        logits = rng.uniform(-3, 3, 3).tolist()
        explorer = SoftmaxExplorer(logits=logits, temperature=float(rng.uniform(0.1, 3)))
        here, there = explorer.compute(), in_page(page, "softmax", explorer.state())
        for name in ("softmax", "smooth_maximum", "eigenvalues"):
            assert_same(here[name], there[name], atol=1e-12)
        if here["eigenvalues"][0] - here["eigenvalues"][1] > 1e-4 and here["eigenvalues"][1] > 1e-7:
            for mine, theirs in zip(here["eigenvectors"], there["eigenvectors"], strict=True):
                assert abs(abs(np.dot(mine, theirs)) - 1) < 1e-6


def test_attention_field_module_computes_what_python_computes(open_page):
    page = open_page(FIELD, alone=True)
    rng = np.random.default_rng(0)
    for number in range(40):
        explorer = AttentionFieldExplorer(
            tokens=rng.uniform(-3, 3, (3, 2)).tolist(),
            weights=rng.normal(size=(3, 2)).tolist(),
            softness=float(rng.uniform()),
            axis=("class", "sequence")[number % 2],
        )
        assert_same(explorer.compute(), in_page(page, "attention_field", explorer.state()), atol=1e-11)


@pytest.mark.parametrize("path", PAGES)
def test_every_slider_answers_the_keyboard(path, open_page):
    page = open_page(path, alone=True)
    explorer = mounted(page)
    sliders = explorer.get_by_role("slider").all()
    assert sliders
    for slider in sliders:
        assert slider.get_attribute("aria-label")
        before = status(explorer)
        slider.focus()
        slider.press("ArrowRight" if float(slider.input_value()) < float(slider.get_attribute("max")) else "ArrowLeft")
        for _ in range(9):
            slider.press("ArrowRight")
        assert status(explorer) != before
        for end in ("Home", "End"):
            slider.press(end)
            assert "NaN" not in explorer.inner_html()
            assert "Infinity" not in explorer.inner_html()
    assert page.complaints == []


@pytest.mark.parametrize("path", [SOFTMAX, FIELD, FLOWS])
def test_every_handle_answers_mouse_and_keyboard(path, open_page):
    page = open_page(path, alone=True)
    explorer = mounted(page)
    handles = explorer.locator(".ao-handle").all()
    assert handles
    for handle in handles:
        assert "arrow keys" in handle.get_attribute("aria-label")
        handle.focus()
        for key in ("ArrowLeft", "ArrowUp"):
            before = status(explorer)
            for _ in range(3):
                handle.press(key)
            assert status(explorer) != before
        before, box = status(explorer), handle.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + 25, y - 20, steps=4)
        page.mouse.up()
        after = handle.bounding_box()
        assert status(explorer) != before
        moved = np.hypot(after["x"] - box["x"], after["y"] - box["y"])
        assert moved > 8
        page.mouse.move(x + 100, y - 60)  # released: it must not follow
        assert handle.bounding_box() == after
    assert page.complaints == []


def test_handles_stay_inside_when_dragged_far_away(open_page):
    for path in (SOFTMAX, FIELD, FLOWS):
        page = open_page(path, alone=True)
        explorer = mounted(page)
        handle, svg = explorer.locator(".ao-handle").first, explorer.locator("svg").first
        box, frame = handle.bounding_box(), svg.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.mouse.down()
        page.mouse.move(frame["x"] + 3 * frame["width"], frame["y"] - 2 * frame["height"], steps=5)
        page.mouse.up()
        after = handle.bounding_box()
        for start, size in (("x", "width"), ("y", "height")):
            middle = after[start] + after[size] / 2
            assert frame[start] - 1 <= middle <= frame[start] + frame[size] + 1
        assert "NaN" not in explorer.inner_html()


def test_softmax_explorer_shows_its_numbers(open_page):
    page = open_page(SOFTMAX, alone=True)
    explorer = mounted(page)
    for name, value in (("logit 1", "2"), ("logit 2", "-1"), ("logit 3", "0.5"), ("temperature", "0.5")):
        explorer.get_by_role("slider", name=name).fill(value)
    expected = SoftmaxExplorer(logits=[2.0, -1.0, 0.5], temperature=0.5).compute()
    shown = ", ".join(f"{x:.2f}" for x in expected["softmax"])
    assert f"softmax ({shown})" in status(explorer)
    assert f"exceeds max by {expected['smooth_maximum'] - 2:.3f}" in status(explorer)


def test_attention_field_shows_its_numbers_on_both_axes(open_page):
    page = open_page(FIELD, alone=True)
    explorer = mounted(page)
    start = AttentionFieldExplorer().state()
    for label, axis in (("tokens", "sequence"), ("classes", "class")):
        explorer.get_by_role("radio", name=label).check()
        expected = AttentionFieldExplorer(**start | {"axis": axis}).compute()
        assert f"Cross-entropy {expected['loss']:.3f}" in status(explorer)
        table = explorer.locator("svg").nth(1).text_content()
        for value in np.array(expected["attention"]).ravel():
            assert f"{value:.2f}" in table
    explorer.get_by_role("radio", name="3").check()
    assert "token 3:" in status(explorer)


def test_moving_one_token_moves_the_others_rows_only_on_the_sequence_axis(open_page):
    page = open_page(FIELD, alone=True)
    explorer = mounted(page)
    cells = lambda: [text.text_content() for text in explorer.locator("svg").nth(1).locator("text").all()]  # noqa: E731
    for label, coupled in (("classes", False), ("tokens", True)):
        explorer.get_by_role("radio", name=label).check()
        explorer.get_by_role("slider", name="first feature").fill("-0.9")
        before = cells()
        explorer.get_by_role("slider", name="first feature").fill("0.6")
        changed = [a != b for a, b in zip(before, cells(), strict=True)]
        # the row of token 3 (its sign, then the key's name, then three cells) closes the table
        last_row = next(i for i, text in enumerate(before) if text.startswith("■"))
        assert any(changed[last_row + 2 : last_row + 5]) == coupled


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_explorers_follow_the_theme(scheme, open_page):
    page = open_page(SOFTMAX, scheme=scheme, mathematics=False)
    explorer = mounted(page)
    colour = explorer.locator("svg text").first.evaluate("node => getComputedStyle(node).fill")
    lightness = sum(int(part) for part in colour.strip("rgb()").split(",")) / 3
    assert (lightness > 128) == (scheme == "dark")
    page.locator("button.theme-switch-button").first.click()
    now = "getComputedStyle(document.querySelector('div.attnopt-explorer svg text')).fill"
    page.wait_for_function(f"before => {now} !== before", arg=colour)


def test_explorers_fit_a_phone_and_their_targets_are_large_enough(open_page):
    targets = """explorer => [...explorer.querySelectorAll("input, button, select, .ao-handle")]
      .map(node => (node.type === "radio" && node.closest("label")) || node)
      .map(node => node.getBoundingClientRect()).filter(box => box.width)
      .map(({ left, right, width, height }) => [left, right, width, height])"""
    for path in (*PAGES, IMAGES, SANDBOX):
        page = open_page(path, width=374, alone=True)  # no more room than in the column of a page 390 wide
        explorer = mounted(page)
        for svg in explorer.locator("svg").all() if path in PAGES else []:
            assert svg.bounding_box()["width"] >= 250
        found = explorer.evaluate(targets)
        assert found
        for left, right, width, height in found:
            assert left >= 0
            assert right <= 374
            assert min(width, height) >= 24  # what WCAG 2.2 asks of a finger's target
