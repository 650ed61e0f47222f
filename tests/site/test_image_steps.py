"""The explorer of image steps: it paints what Python computes, and answers the keyboard."""

import base64
import re

import numpy as np
import pytest
from explorer_pages import mounted, status
from helpers import image_steps


@pytest.fixture
def here():
    """Python's explorer, of which the page shows a copy."""
    return image_steps()


@pytest.fixture
def page(show, here):
    return show(here)


def set_controls(explorer, state):
    explorer.get_by_role("radio").nth(state["image"]).check()
    explorer.get_by_role("combobox", name="supplied label").select_option(state["label"])
    for name, trait in (("noise", "noise"), ("step size", "step"), ("blocks", "iteration")):
        explorer.get_by_role("slider", name=name).fill(str(state[trait]))


def pixels(canvas):
    """Red, green, blue and opacity of a canvas, shape (784, 4)."""
    read = """node => {
      const copy = new OffscreenCanvas(28, 28).getContext("2d", { willReadFrequently: true });
      copy.drawImage(node, 0, 0);
      return Array.from(copy.getImageData(0, 0, 28, 28).data);
    }"""
    return np.array(canvas.evaluate(read), dtype=float).reshape(784, 4)


def test_it_paints_the_pixels_and_names_the_numbers_that_python_computes(page, here):
    explorer = mounted(page)
    for controls in (
        {"image": 1, "label": "Bag", "noise": 0.3, "step": 0.1, "iteration": 4},
        {"image": 0, "label": "Sneaker", "noise": 0.0, "step": 2.0, "iteration": 1},
    ):
        for name, value in controls.items():
            setattr(here, name, value)
        set_controls(explorer, controls)
        numbers = here.compute()
        theta = np.frombuffer(base64.b64decode(here.weights), "<f4").reshape(10, 784).astype(float)
        difference = numbers["difference"] @ theta
        now, change = (pixels(explorer.locator(".ao-screen canvas").nth(index)) for index in (0, 1))
        gray = 255 * np.clip(here.start().numpy() + difference, 0, 1)
        np.testing.assert_allclose(now[:, :3], np.tile(gray[:, None], 3), atol=0.51)
        assert (now[:, 3] == 255).all()
        strong = np.abs(difference) > 0.3 * np.abs(difference).max()
        assert ((change[strong, 0] > change[strong, 2]) == (difference[strong] > 0)).all()  # orange is brighter, blue darker
        assert np.corrcoef(change[:, 3], np.abs(difference))[0, 1] > 0.999
        predicted = numbers["predicted"][here.iteration]
        name, probability = here.classes[predicted], numbers["probabilities"][here.iteration][predicted]
        assert f"predicted {name} (probability {probability:.3f}); supplied: {here.label}." in status(explorer)
        moved = float(re.search(r"moved by ([\d.]+)", status(explorer)).group(1))
        assert moved == pytest.approx(numbers["moved"][here.iteration], rel=5e-3)
        bars = explorer.locator("svg").text_content()
        assert f"★ {here.label}" in bars
        for value in numbers["probabilities"][here.iteration]:
            assert f"{value:.2f}" in bars
    assert page.complaints == []


def test_its_own_softmax_moves_no_pixel(page):
    explorer = mounted(page)
    set_controls(explorer, {"image": 2, "label": "soft", "noise": 0.5, "step": 3, "iteration": 0})
    before = pixels(explorer.locator(".ao-screen canvas").first)
    explorer.get_by_role("slider", name="blocks").fill("5")
    assert "exactly zero" in status(explorer)
    assert "★" not in explorer.locator("svg").text_content()
    assert (pixels(explorer.locator(".ao-screen canvas").first) == before).all()
    assert (pixels(explorer.locator(".ao-screen canvas").nth(1))[:, 3] == 0).all()


def test_every_label_and_image_can_be_chosen_by_name_and_key(page, here):
    explorer = mounted(page)
    select = explorer.get_by_role("combobox", name="supplied label")
    assert select.locator("option").count() == 13
    for option in range(13):
        before = status(explorer)
        select.select_option(index=(option + 1) % 13)
        assert status(explorer) != before
    radios = explorer.get_by_role("radio")
    assert radios.count() == len(here.truth) + 1
    assert radios.first.and_(explorer.get_by_role("radio", name="0: black", exact=True)).count() == 1
    for index, truth in enumerate(here.truth, start=1):
        name = f"{index}: {here.classes[truth]}"
        assert radios.nth(index).and_(explorer.get_by_role("radio", name=name, exact=True)).count() == 1
    radios.first.check()
    for index in (1, 2):
        before = status(explorer)
        page.keyboard.press("ArrowRight")
        assert radios.nth(index).is_checked()
        assert status(explorer) != before
    assert page.complaints == []


def test_the_black_image_has_no_true_class(page, here):
    explorer = mounted(page)
    set_controls(explorer, {"image": 0, "label": "true", "noise": 0, "step": 1, "iteration": 1})
    assert "a black image has no true class" in status(explorer)
    assert f"★ {here.classes[0]}" in explorer.locator("svg").text_content()
    assert explorer.locator("option").first.inner_text() == f"{here.classes[0]} (no true label)"


def test_its_screens_fit_a_phone(show, here):
    explorer = mounted(show(here, width=374))
    for canvas in explorer.locator("canvas").all():
        box = canvas.bounding_box()
        assert 0 <= box["x"] <= 374 - box["width"]
    assert all(canvas.bounding_box()["width"] >= 130 for canvas in explorer.locator(".ao-screen canvas").all())
