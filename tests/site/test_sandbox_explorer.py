"""The visual sandbox with every recorded run: numbers, mouse, keyboard, touch."""

import pytest
from explorer_pages import assert_finite, mounted, status

from attnbook.explorers import Sandbox
from attnopt.clustering.sandbox import load_run, run_names

RUNS = ("success", *(name for name in run_names() if name != "success"))


@pytest.fixture
def sandbox(show):
    """Open the sandbox with every recorded run, or those named."""
    return lambda epoch=None, runs=RUNS, **options: show(Sandbox(runs=runs, epoch=epoch), **options)


def test_sliders_and_runs_by_keyboard(sandbox):
    page = sandbox()
    explorer = mounted(page)
    slider = {name: explorer.get_by_role("slider", name=name) for name in ("epoch", "prefix", "suffix")}
    for name in RUNS:
        run = load_run(name)
        explorer.get_by_role("radio", name=run.title, exact=True).press("Space")
        for key, epoch in (("Home", 0), ("ArrowRight", run.epochs[1]), ("End", 1000), ("ArrowLeft", run.epochs[-2])):
            slider["epoch"].press(key)
            assert status(explorer).startswith(f"Epoch {epoch}:")
            assert slider["epoch"].get_attribute("aria-valuetext") == str(epoch)
        frame = len(run.epochs) - 2
        then = run.history["epoch"].tolist().index(run.epochs[frame])
        assert f"right on {100 * run.history['train'][then]:.1f}% of the training set" in status(explorer)
        shares = {name: f"{run.frames[name][frame]:.3f}" for name in ("suffix", "permutation")}
        assert f"suffix {shares['suffix']}, permutation {shares['permutation']}." in status(explorer)
        m = run.frames["m"][frame].astype(int).tolist() if "m" in run.frames else []
        if m and not 0 < max(map(abs, m)) <= 9:
            assert "No count with small integer weights describes ξ here; parity coefficient π = " in status(explorer)
        elif m:
            spelt = [" ".join(f"{one}".replace("-", "−") for one in part) for part in (m[:5], m[5:])]
            explained = 100 * run.frames["explained"][frame]
            assert (
                f"m = {spelt[0]} | {spelt[1]}, and the level M = Σ mₜxₜ explains {explained:.1f}% of ξ's variance; "
                "parity coefficient π = " in status(explorer)
            )
        slider["prefix"].press("End")
        slider["suffix"].press("End")
        tokens = "".join(str(x) for x in run.tokens[-1].tolist())
        assert f"Sequence {tokens[:5]} {tokens[5:]}:" in status(explorer)
        share = run.stages(frame)["attention"][-1, :5].sum().item()
        assert f": {100 * share:.1f}% of its attention" in status(explorer)
        assert slider["prefix"].get_attribute("aria-valuetext") == tokens[:5]
        assert_finite(explorer)
    assert explorer.get_by_role("radio", name="a run of your own", exact=True).is_visible()
    assert page.complaints == []


def test_play_and_pause(sandbox):
    page = sandbox(epoch=0)
    explorer = mounted(page)
    live = explorer.get_by_role("status")
    explorer.get_by_role("button", name="play").press("Enter")
    assert live.get_attribute("aria-live") == "off"
    page.wait_for_function("!document.querySelector('[role=status]').textContent.startsWith('Epoch 0:')")
    explorer.get_by_role("button", name="pause").click()
    held = status(explorer)
    assert live.get_attribute("aria-live") == "polite"
    page.wait_for_timeout(400)
    assert status(explorer) == held
    epoch = explorer.get_by_role("slider", name="epoch")
    epoch.press("End")
    epoch.press("ArrowLeft")
    explorer.get_by_role("button", name="play").click()
    page.wait_for_function("document.querySelector('[role=status]').textContent.startsWith('Epoch 1000:')")
    explorer.get_by_role("button", name="play").wait_for()  # it stops at the end
    explorer.get_by_role("button", name="play").click()  # and begins anew
    page.wait_for_function("!document.querySelector('[role=status]').textContent.startsWith('Epoch 1000:')")
    epoch.press("ArrowRight")
    assert explorer.get_by_role("button", name="play").is_visible()  # who moves the slider takes over
    assert page.complaints == []


def test_a_frame_is_drawn_in_time(sandbox):
    page = sandbox()
    explorer = mounted(page)
    slider = explorer.get_by_role("slider", name="epoch")
    script = """slider => { const start = performance.now(); for (let frame = 0; frame < 20; frame++) {
      slider.value = frame; slider.dispatchEvent(new Event("input")); } return (performance.now() - start) / 20; }"""
    assert slider.evaluate(script) < 300  # milliseconds, on a busy machine


def test_less_motion_means_slower_frames(sandbox):
    page = sandbox(epoch=0, reduced_motion="reduce")
    explorer = mounted(page)
    explorer.get_by_role("button", name="play").click()
    page.wait_for_timeout(1500)
    explorer.get_by_role("button", name="pause").click()
    assert int(status(explorer).split()[1].rstrip(":")) <= load_run("success").epochs[4]


def test_the_sentence_under_the_mouse_lights_up_everywhere(sandbox):
    page = sandbox(runs=("success",))
    explorer = mounted(page)
    run = load_run("success")
    explorer.get_by_text("9 more panels").click()
    own = status(explorer)
    rows = explorer.locator(".ao-panel-attention svg").bounding_box()
    page.mouse.move(rows["x"] + 60, rows["y"] + 2)
    assert status(explorer) == own  # the first row is the chosen sentence
    page.mouse.move(rows["x"] + 60, rows["y"] + 40)
    hovered = status(explorer)
    assert hovered != own
    page.mouse.move(rows["x"] + 60, rows["y"] - 30)
    assert status(explorer) == own
    for name in ("sequence", "regions"):
        explorer.locator(f".ao-panel-{name} svg").scroll_into_view_if_needed()
        plane = explorer.locator(f".ao-panel-{name} svg").bounding_box()
        last = len(run.epochs) - 1
        reach, points = run.reaches["sequence"][last], run.stages(last)["sequence"].numpy()
        at = points[len(points) - 1]
        page.mouse.click(
            plane["x"] + plane["width"] * (1 + at[0] / reach) / 2, plane["y"] + plane["height"] * (1 - at[1] / reach) / 2
        )
        assert "Sequence 11111" in status(explorer)
        explorer.get_by_role("slider", name="prefix").press("Home")
        page.mouse.move(5, 5)
        assert "Sequence 00000" in status(explorer)
    assert page.complaints == []


def test_the_curves_are_a_slider_too(sandbox):
    page = sandbox(runs=("success",))
    explorer = mounted(page)
    explorer.get_by_text("9 more panels").press("Enter")
    for name in ("loss", "influences", "gradients"):
        curves = explorer.locator(f".ao-panel-{name} svg")
        box = curves.bounding_box()
        for part, low, high in ((0.25, 0, 300), (0.7, 400, 800)):
            curves.click(position={"x": part * box["width"], "y": 0.4 * box["height"]})
            assert low < int(status(explorer).split()[1].rstrip(":")) < high
    assert page.complaints == []


def test_on_a_phone_by_touch(sandbox):
    page = sandbox(width=390, has_touch=True, is_mobile=True)
    explorer = mounted(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    shown = lambda: [svg for svg in explorer.locator(".ao-panel svg").all() if svg.is_visible()]  # noqa: E731
    assert len(shown()) == 3
    assert explorer.locator(".ao-player").evaluate("bar => getComputedStyle(bar).position") == "static"  # it covers nothing
    explorer.get_by_text("9 more panels").tap()
    panels = shown()
    assert len(panels) == 12
    for box in (svg.bounding_box() for svg in panels):
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        assert box["width"] >= 150
    before = status(explorer)
    rows = explorer.locator(".ao-panel-attention svg")
    rows.scroll_into_view_if_needed()
    box = rows.bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + 0.6 * box["height"])
    assert status(explorer) != before
    curve = explorer.locator(".ao-panel-loss svg")
    curve.scroll_into_view_if_needed()
    box = curve.bounding_box()
    page.evaluate("document.body.style.paddingBottom = '2000px'")
    finger, scrolled = page.context.new_cdp_session(page), page.evaluate("scrollY")

    def swipe(across, up):
        at = {"x": box["x"] + 0.4 * box["width"], "y": box["y"] + 0.5 * box["height"]}
        for part in range(12):
            kind = "touchMove" if part else "touchStart"
            points = [{"x": at["x"] + part * across, "y": at["y"] - part * up}]
            finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    swipe(0, 15)  # scrolls
    page.wait_for_function(f"scrollY > {scrolled} + 50")
    assert status(explorer).startswith("Epoch 1000:")
    curve.scroll_into_view_if_needed()
    box = curve.bounding_box()
    swipe(5, 0)  # seeks
    page.wait_for_function("!document.querySelector('[role=status]').textContent.startsWith('Epoch 1000:')")
    explorer.get_by_role("slider", name="epoch").press("End")
    button = explorer.get_by_role("button", name="play")
    box = button.bounding_box()
    assert min(box["width"], box["height"]) >= 24
    button.tap()
    page.wait_for_function("!document.querySelector('[role=status]').textContent.startsWith('Epoch 1000:')")
    assert page.complaints == []


def test_all_sequences_are_dots_and_sentences_circles(sandbox):
    explorer = mounted(sandbox(runs=("success",)))
    run = load_run("success")
    circles = explorer.locator(".ao-panel-sequence circle")
    assert circles.count() == len(run.tokens) + 1  # the chosen one has another around it
    for name in ("sequence", "ladder"):
        painted = explorer.locator(f".ao-panel-{name} canvas").evaluate(
            "(one) => one.getContext('2d').getImageData(0, 0, one.width, one.height)"
            ".data.filter((x, at) => at % 4 === 3 && x).length"
        )
        assert painted > 100
    assert explorer.locator(".ao-panel-count rect").count() == 12 + 1  # a bar per position, and the frame
    levels = explorer.locator(".ao-panel-ladder text").all_text_contents()[:-1]
    assert [int(one.replace("−", "-")) for one in levels] == list(range(len(levels)))
