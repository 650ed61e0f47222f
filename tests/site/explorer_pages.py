"""What the tests of explorers in a page share: the book's pages, and how to find, ask and compare an explorer."""

import json
from pathlib import Path

import numpy as np
from explorer_states import NAMES

from attnbook.explorers import KINDS

BOOK = Path(__file__).parents[2] / "book"


def page_of(name):
    """The first of the book's pages that shows an explorer, if there is one."""
    call = f"{KINDS[name].__name__}("
    pages = [*sorted(BOOK.glob("*/*.md")), BOOK / "laboratory.md", BOOK / "one_picture.md"]
    shown = (path for path in pages if call in path.read_text(encoding="utf-8"))
    return next((path.relative_to(BOOK).with_suffix(".html").as_posix() for path in shown), None)


PAGES = {name: page for name in NAMES if (page := page_of(name))}


# As soon as an explorer is drawn, without the pauses of a locator that waits. A question is passed over without waiting for
# frames: other tests click as a reader does.
READY = """async ([seconds, asking]) => {
  const there = () => document.querySelector("div.attnopt-explorer[data-mounted]");
  await new Promise((done, fail) => {
    const look = () => { if (there()) done(); }, watch = new MutationObserver(look);
    watch.observe(document, { subtree: true, childList: true, attributeFilter: ["data-mounted"] });
    setTimeout(() => fail(new Error(`no explorer in ${seconds} s`)), 1000 * seconds);
    look();
  });
  there().scrollIntoView({ block: "nearest", behavior: "instant" });
  const buttons = asking ? [] : [...there().querySelectorAll("button")];
  for (const button of buttons) if (button.textContent === "show me") button.click();
}"""


def mounted(page, asking=False):
    """The explorer of a page, once its module has drawn it; a question put first is passed over, unless it shall stand."""
    page.evaluate(READY, [120, asking])
    return page.locator("div.attnopt-explorer[data-mounted]")


def drag(page, node, right, down, steps=2):
    """Drag a node by its middle with the mouse: where it was, and where the mouse took it."""
    box = node.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + right, y + down, steps=steps)
    page.mouse.up()
    return box, (x, y)


# As texts, which pass between Python and the page many times faster than nested arrays.
COMPUTED = """async ([module, states]) => {
  const { compute } = await attnopt.load(module), plain = (_, value) => ArrayBuffer.isView(value) ? [...value] : value;
  return JSON.stringify(JSON.parse(states).map((state) => compute(state)), plain);
}"""


def in_page(page, module, states):
    """What the module's own `compute` returns in the page for each state; what is no finite number becomes None."""
    return json.loads(page.evaluate(COMPUTED, [module, json.dumps(states)]))


def status(explorer):
    return explorer.locator("[role=status]").inner_text()


def assert_finite(explorer):
    """Nothing that is drawn or said is no number."""
    assert explorer.evaluate("node => node.innerHTML.match(/NaN|Infinity|undefined/)") is None


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
