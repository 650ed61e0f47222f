"""Static images of the explorers, for places where no script runs; the page's modules draw them in headless Chromium."""

import contextlib
import io
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from PIL import Image
from playwright.sync_api import Locator, Page, sync_playwright

from attnbook.chromium import launch
from attnbook.mount import script_json, write_scripts

WIDTH, COLUMN, SCALE = 1280, 46, 2  # of the window; of the text, in rem; pixels per unit
# As in the built page, without the parts that only respond to a reader.
BLANK = f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><link rel="icon" href="data:,">
<link rel="stylesheet" href="explorers.css"><script defer src="host.js"></script><style>
body {{ margin: 0; color: #212529; background: #fff; font-family: system-ui, sans-serif; }}
.attnopt-explorer {{ width: {COLUMN}rem; padding: 0.25rem; }}
.attnopt-explorer :is(input, select, button, fieldset, label) {{ display: none; }}
.ao :is(.ao-controls, .ao-tokens, .ao-strip, .ao-player, .ao-readout, .ao-about, .ao-foot, .ao-tour, .ao-guess, .ao-alert,
.ao-fold) {{ display: none; }}
</style></head><body><div class="attnopt-explorer"><script type="application/json">{{}}</script></div></body></html>"""
PASSED = """() => [...document.querySelectorAll(".ao-guess button")].find((one) => one.textContent === "show me")?.click()"""
DRAWN = "!document.querySelector('.ao-waiting') && document.fonts.ready.then(() => true)"


@contextlib.contextmanager
def studio(scale: float = SCALE) -> Iterator[Callable[[dict], tuple[Page, Locator]]]:
    """A Chromium in which explorers are mounted from the output of `Explorer.page`, with their questions skipped.

    Args:
        scale: pixels per unit of length.

    Yields:
        A function that mounts an explorer and returns the page and the explorer's element.
    """
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        write_scripts(folder)
        browser = launch(playwright)
        page = browser.new_page(viewport={"width": WIDTH, "height": 900}, device_scale_factor=scale, color_scheme="light")

        def mount(explorer: dict) -> tuple[Page, Locator]:
            (folder / "still.html").write_text(BLANK.replace("{}", script_json(explorer)), encoding="utf-8")
            page.goto((folder / "still.html").as_uri())
            element = page.locator("div.attnopt-explorer[data-mounted]")
            element.wait_for()
            page.evaluate(PASSED)
            page.wait_for_function(DRAWN)
            return page, element

        yield mount
        browser.close()


def still(mount: Callable[[dict], tuple[Page, Locator]], explorer: dict) -> bytes:
    """An explorer as a PNG with a palette; its bytes are the same every time.

    Args:
        mount: the function that `studio` yields.
        explorer: the output of `Explorer.page`.
    """
    _, element = mount(explorer)
    drawn = Image.open(io.BytesIO(element.screenshot(animations="disabled"))).convert("RGB")
    found = io.BytesIO()
    drawn.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(found, "png", optimize=True)
    return found.getvalue()
