"""Explorers in a page of their own, without a kernel: they compute what Python computes, and answer mouse and keyboard."""

import numpy as np
import pytest
from explorer_pages import PAGES, assert_finite, assert_same, drag, in_page, mounted, status
from explorer_states import NAMES, TOLERANCES, explorers, make, settled

from attnbook.mount import script_json

HANDLES = [
    "answer_forms",
    "posterior_forms",
    "softmax",
    "attention_field",
    "feature_flow",
    "forward_pass",
    "gdpp",
    "gradient_bound",
    "ideal_circuit",
    "labels_in_context",
    "layers",
    "layer_training",
    "one_head",
    "one_layer_knows",
    "one_picture",
    "one_step",
    "oracle_value",
    "plateaus",
    "product",
    "quadratic_field",
    "second_valley",
    "spike_steps",
    "step_sizes",
]


@pytest.mark.parametrize("name", NAMES)
def test_module_computes_what_python_computes(name, show):
    page, states = show(), explorers(name)
    found = in_page(page, name, [explorer.state() for explorer in states])
    for explorer, there in zip(states, found, strict=True):
        assert_same(settled(name, explorer.compute()), settled(name, there), *TOLERANCES.get(name, ()))
    assert page.complaints == []


KERNEL = """async ([text, page]) => {
  const { state, bounds } = JSON.parse(page);
  const module = await import(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
  const all = { ...state, _bounds: bounds }, el = document.createElement("div");
  document.body.append(el);
  const model = { get: (name) => all[name], set() {}, on() {}, off() {}, save_changes() {} };
  const stop = await module.default.render({ el, model });
  [...el.querySelectorAll(".ao-guess button")].at(-1)?.click();
  stop();
  el.remove();
  return [el.querySelector("[role=status]").textContent, el.textContent.includes("copy link")];
}"""
PHONE = 374  # no more room than in the column of a page 390 wide
TARGETS = """explorer => [...explorer.querySelectorAll("input, button, select, .ao-handle")]
  .map(node => (node.type === "radio" && node.closest("label")) || node)
  .map(node => node.getBoundingClientRect()).filter(box => box.width)
  .map(({ left, right, width, height }) => [left, right, width, height])"""


def press(explorer, node, key, times):
    """Press a key until the explorer says something else, so many times at most."""
    before = status(explorer)
    node.focus()
    for _ in range(times):
        explorer.page.keyboard.press(key)
        if status(explorer) != before:
            return
    raise AssertionError(f"{key} changes nothing at {node}: {before}")


def assert_controls_answer_the_keyboard(explorer):
    sliders = explorer.get_by_role("slider").all()
    assert sliders
    for slider in sliders:
        assert slider.get_attribute("aria-label")
        at_its_end = slider.input_value() == slider.get_attribute("max")
        press(explorer, slider, "ArrowLeft" if at_its_end else "ArrowRight", 9)
        for end in ("Home", "End"):
            explorer.page.keyboard.press(end)
            assert_finite(explorer)
    for radio in explorer.locator("input[type=radio]").all():
        if radio.is_visible() and radio.is_enabled():
            radio.press("Space")
            assert radio.is_checked()
            assert_finite(explorer)


def assert_handles_answer_and_stay_inside(page, explorer):
    handles = [handle for handle in explorer.locator(".ao-handle").all() if handle.is_visible()]
    assert handles
    for handle in handles:
        assert "arrow keys" in handle.get_attribute("aria-label")
        for key in ("ArrowLeft", "ArrowUp"):  # three times, away from another that may lie beneath
            before = status(explorer)
            handle.focus()
            for _ in range(3):
                page.keyboard.press(key)
            assert status(explorer) != before
        before = status(explorer)
        box, (x, y) = drag(page, handle, 25, -20)
        after = handle.bounding_box()
        assert status(explorer) != before
        assert np.hypot(after["x"] - box["x"], after["y"] - box["y"]) > 8
        page.mouse.move(x + 100, y - 60)  # released: it must not follow
        assert handle.bounding_box() == after
    handle, frame = handles[0], explorer.locator("svg").first.bounding_box()
    drag(page, handle, 3 * frame["width"], -2 * frame["height"])
    after = handle.bounding_box()
    for start, size in (("x", "width"), ("y", "height")):
        middle = after[start] + after[size] / 2
        assert frame[start] - 1 <= middle <= frame[start] + frame[size] + 1
    assert_finite(explorer)


def assert_fits_a_phone(name, explorer):
    for svg in explorer.locator("svg:visible").all():
        assert svg.bounding_box()["width"] >= (250 if name != "sandbox" else 150)
    found = explorer.evaluate(TARGETS)
    assert found
    for left, right, width, height in found:
        assert left >= 0
        assert right <= PHONE
        assert min(width, height) >= 24  # what WCAG 2.2 asks of a finger's target


@pytest.mark.parametrize("name", NAMES)
def test_an_explorer_answers_keyboard_mouse_and_address_and_fits_a_phone(name, show):
    made = make(name)
    page = show(made)
    explorer = mounted(page)
    first, reset = status(explorer), explorer.get_by_role("button", name="reset")
    if name in HANDLES:
        assert_handles_answer_and_stay_inside(page, explorer)
        reset.click()
        assert status(explorer) == first
    assert_controls_answer_the_keyboard(explorer)
    reset.press("Enter")
    assert status(explorer) == first

    page.evaluate("history.replaceState(null, '', location.pathname)")  # of the states passed through, none stays there
    slider = explorer.get_by_role("slider").last
    slider.press("End")
    slider.press("ArrowRight")
    said = status(explorer)
    assert said != first
    assert page.evaluate(KERNEL, [made._esm, script_json(made.page())]) == [first, False]  # no address leads to a cell
    page.wait_for_function(f"/^#{name}=./.test(location.hash)")  # which takes a while
    link = page.url
    page.goto("about:blank")
    page.set_viewport_size({"width": PHONE, "height": 900})
    page.goto(link)
    explorer = mounted(page)
    assert status(explorer) == said
    page.evaluate("location.hash = '#elsewhere'")
    assert status(explorer) == said
    page.evaluate(f"location.hash = '#{name}=none:3;step:NaN;%:%'")  # what no explorer has: the first state
    page.wait_for_function("first => document.querySelector('[role=status]').textContent === first", arg=first)
    assert_fits_a_phone(name, explorer)
    assert page.complaints == []


ELSEWHERE = """async (hash) => {
  const slider = [...document.querySelectorAll("[role=slider], input[type=range]")].find((one) => one.checkVisibility());
  slider.value = slider.max;
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  const later = performance.now() + 600;  // the explorer's own address is due before the page may do anything else
  while (performance.now() < later);
  location.hash = hash;
  await new Promise((done) => setTimeout(done, 600));
  return location.hash;
}"""


@pytest.mark.parametrize("hash", ["#elsewhere", "#one_layer=examples:1"])
def test_a_link_that_is_followed_at_once_is_not_written_over(hash, show):
    page = show(make("one_layer"))
    mounted(page)
    assert page.evaluate(ELSEWHERE, hash) == hash
    assert ("With 1 example, the loss" in status(mounted(page))) == hash.endswith("examples:1")
    assert page.complaints == []


def test_links_are_copied_and_each_of_two_explorers_has_its_own(show):
    page = show(make("one_layer"), make("one_layer"), permissions=["clipboard-read", "clipboard-write"])
    page.locator("div.attnopt-explorer[data-mounted]").nth(1).wait_for()
    first, second = (page.locator("div.attnopt-explorer").nth(index) for index in (0, 1))
    second.get_by_role("slider", name="examples n").press("Home")
    second.get_by_role("button", name="copy link").click()
    second.get_by_role("button", name="link copied").wait_for()
    link = page.evaluate("navigator.clipboard.readText()")
    assert link.endswith("#one_layer-2=examples:1")
    page.goto("about:blank")
    page.goto(link)
    page.locator("div.attnopt-explorer[data-mounted]").nth(1).wait_for()
    assert "With 1 example, the loss" in status(second)
    assert "With 10 examples, the loss" in status(first)
    second.get_by_role("button", name="reset").click()
    page.wait_for_function("location.hash === '#one_layer-2='")
    assert page.complaints == []


@pytest.mark.parametrize(("name", "state"), [("forward_pass", "layers:5"), ("one_step", "examples:1")])
def test_a_link_into_a_state_leaves_a_standing_question(name, state, show):
    page = show(make(name))
    explorer = mounted(page, asking=True)
    assert explorer.locator(".ao-guess").count() == 1
    page.evaluate(f"location.hash = '#{name}={state}'")
    page.wait_for_function("document.querySelector('[role=status]').textContent !== ''")
    trait, value = state.split(":")
    assert status(explorer) == status(mounted(show(make(name, **{trait: int(value)}))))
    assert explorer.locator(".ao-guess, .ao-guessed, .ao-marking").count() == 0
    assert all(handle.is_visible() for handle in explorer.locator(".ao-handle").all())
    assert page.evaluate("document.activeElement === document.body")  # nothing took the place that the reader is at
    assert page.complaints == []


def test_a_link_into_a_chapter_leads_to_the_explorer_in_its_state(open_page):
    page = open_page(PAGES["one_layer"] + "#one_layer=examples:1", mathematics=False)
    explorer = page.locator("div.attnopt-explorer[data-mounted='one_layer']")
    explorer.wait_for()
    assert "With 1 example, the loss" in status(explorer)
    near = "document.querySelector(\"[data-mounted='one_layer']\").getBoundingClientRect().top < innerHeight / 2"
    page.wait_for_function(near)
    assert page.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_explorers_follow_the_theme(scheme, open_page):
    page = open_page(PAGES["softmax"], scheme=scheme, mathematics=False)
    explorer = mounted(page)
    color = explorer.locator("svg text").first.evaluate("node => getComputedStyle(node).fill")
    lightness = sum(int(part) for part in color.strip("rgb()").split(",")) / 3
    assert (lightness > 128) == (scheme == "dark")
    page.locator("button.theme-switch-button").first.click()
    now = "getComputedStyle(document.querySelector('div.attnopt-explorer svg text')).fill"
    page.wait_for_function(f"before => {now} !== before", arg=color)
