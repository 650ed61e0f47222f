"""The built book opened as a file, at the address that the build prints: explorers live there, too."""

import pytest
from conftest import HTML, settled, typeset, write_page
from explorer_pages import PAGES, mounted
from explorer_states import NAMES, make

MATHJAX = "**/mathjax/**"
SOON = ".attnopt-still { animation-delay: 0s !important; }"  # as after a while


# The explorers that stay as they are when their first slider is moved; a question put first is passed over.
DEAF = """() => [...document.querySelectorAll("[data-mounted]")].filter(explorer => {
  for (const button of explorer.querySelectorAll("button")) if (button.textContent === "show me") button.click();
  const slider = explorer.querySelector("input[type=range]:not([min='0'][max='0'])"), before = explorer.innerHTML;
  for (const end of [slider.max, slider.min]) {
    slider.value = end;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
  }
  return explorer.innerHTML === before;
}).map(explorer => explorer.dataset.mounted)"""


@pytest.fixture
def open_file(new_page):
    """Open a page of the book from the disk; its complaints collect in `page.complaints`."""
    pages = []

    def open_file(path, scripts=True, mathematics=True):
        page = new_page("file:", 1280, "light", scripts)
        pages.append(page)
        if not mathematics:
            page.route(MATHJAX, lambda route: route.fulfill(content_type="text/javascript", body=""))
        page.goto((HTML / path).as_uri(), wait_until="load")
        return page

    yield open_file
    for page in pages:
        page.unroute(MATHJAX)


def assert_all_live(page):
    """Every explorer is mounted, none says that it is a picture, and the address has a state."""
    page.wait_for_function("location.hash.includes('=')")
    assert page.locator("div.attnopt-explorer:not([data-mounted])").count() == 0
    assert page.locator(".attnopt-still").count() == 0
    assert page.complaints == []


@pytest.mark.parametrize("path", ["index.html", PAGES["layers"]])
def test_explorers_live_in_a_page_opened_as_a_file(path, open_file):
    page = open_file(path, mathematics=False)
    explorer = page.locator("div.attnopt-explorer[data-mounted]").first
    for button in explorer.get_by_role("button", name="show me").all():  # a question put first
        button.dispatch_event("click")
    slider = explorer.locator("input[type=range]:not([min='0'][max='0'])").first  # before the first step, no epoch to choose
    before = explorer.inner_html()
    for key in ("End", "Home", "ArrowRight"):
        slider.press(key)
    assert explorer.inner_html() != before
    assert_all_live(page)


def test_every_explorer_lives_in_a_file(alone, new_page):
    page = new_page("file:", 1280, "light")
    page.goto(write_page(alone[0], *map(make, NAMES)).as_uri(), wait_until="load")
    page.wait_for_function("count => document.querySelectorAll('[data-mounted]').length === count", arg=len(NAMES))
    assert page.evaluate(DEAF) == []
    assert_all_live(page)


@pytest.mark.parametrize("path", ["index.html", "ledger.html", "glossary.html", "search.html", PAGES["softmax"]])
def test_other_pages_are_quiet_there(path, open_file):
    page = open_file(path, mathematics=path != "ledger.html")  # whose mathematics takes seconds
    typeset(page)
    settled(page)
    assert page.complaints == []


def test_without_scripts_a_still_says_that_it_is_one(open_file):
    page = open_file(PAGES["softmax"], scripts=False)
    note = page.get_by_text("This is a static image: the explorer needs scripts")
    assert not note.is_visible()
    assert note.evaluate("note => parseFloat(getComputedStyle(note).animationDelay)") == 5
    page.evaluate("style => document.head.insertAdjacentHTML('beforeend', `<style>${style}</style>`)", SOON)
    note.wait_for()
    assert page.locator("div.attnopt-explorer img").is_visible()


@pytest.mark.parametrize(
    ("broken", "said"),
    [(name, f"{name} could not be run") for name in ("common.js", "shell.js", "softmax.js")],
)
def test_an_explorer_that_cannot_start_says_why(broken, said, browser, addresses):
    context = browser.new_context()
    context.route(f"**/explorers/{broken}", lambda route: route.fulfill(content_type="text/javascript", body="let = 1"))
    page = context.new_page()
    page.goto(addresses[False] + PAGES["softmax"])
    page.add_style_tag(content=SOON)
    page.get_by_text(f"This is a static image: the explorer could not start ({said}).").wait_for()
    assert page.locator("div.attnopt-explorer img").is_visible()
    context.close()


def test_a_live_explorer_does_not_speak_of_a_still(show):
    page = show(make("softmax"))
    mounted(page)
    assert page.get_by_text("static image").count() == 0
