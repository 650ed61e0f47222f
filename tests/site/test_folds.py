"""What is folded: native, opened by links and searches, switched and remembered over pages, printed as it should be."""

import pytest

CHAPTER, OTHER = "regression/attention_is_a_gradient.html", "in_context/one_layer_one_step.html"
PROOFS, CODE = "details.ao-proof, details.ao-section", "div.cell details.hide"


def opened(page, kind):
    """How many folds of a kind are open, and how many there are."""
    return page.locator(kind).evaluate_all("folds => [folds.filter(fold => fold.open).length, folds.length]")


def switch(page, name):
    return page.get_by_role("group", name="Show on all pages").get_by_role("button", name=name)


def test_a_chapter_opens_with_its_story_alone_and_a_fold_opens_by_keyboard(open_page):
    page = open_page(CHAPTER, mathematics=False)
    for kind in (PROOFS, CODE, "details.ao-solution", "details.ao-claim"):
        count, total = opened(page, kind)
        assert count == 0 < total
    first = page.locator("details.ao-proof").first
    first.locator("summary").press("Enter")
    first.locator("p").first.wait_for(state="visible")
    first.locator("summary").press("Space")
    first.locator("p").first.wait_for(state="hidden")


@pytest.mark.parametrize(("name", "kind", "other"), [("all details", PROOFS, CODE), ("all code", CODE, PROOFS)])
def test_the_switch_opens_one_kind_and_is_remembered_over_pages(name, kind, other, browser, addresses):
    context = browser.new_context()  # one that remembers
    page = context.new_page()
    page.goto(addresses[False] + CHAPTER)
    button = switch(page, name)
    assert button.get_attribute("aria-pressed") == "false"
    button.press("Enter")
    assert button.get_attribute("aria-pressed") == "true"
    assert opened(page, kind)[0] == opened(page, kind)[1] > 0
    assert opened(page, other)[0] == 0
    page.goto(addresses[False] + OTHER)
    assert opened(page, kind)[0] == opened(page, kind)[1] > 0
    assert opened(page, other)[0] == 0
    switch(page, name).click()
    page.goto(addresses[False] + CHAPTER)
    assert opened(page, kind)[0] == 0
    context.close()


def test_the_switch_answers_a_finger_and_stays_where_it_is(open_page):
    page = open_page(CHAPTER, mathematics=False, viewport={"width": 390, "height": 844}, has_touch=True)
    button = switch(page, "all details")
    before = button.bounding_box()["y"]
    button.tap()
    assert opened(page, PROOFS)[0] == opened(page, PROOFS)[1]
    assert abs(button.bounding_box()["y"] - before) < 2
    assert button.bounding_box()["height"] >= 24


@pytest.mark.parametrize(
    "anchor", ["equation-eq-cross-entropy", "thm-agreement", "fold-any-model", "equation-eq-general-gradient"]
)
def test_a_link_opens_what_it_leads_to(anchor, open_page):
    page = open_page(f"{CHAPTER}#{anchor}", mathematics=False)
    page.wait_for_function("name => document.getElementById(name).checkVisibility()", arg=anchor)
    inside = page.locator(f"[id='{anchor}']")
    assert inside.evaluate(
        "node => !(node.matches('section') ? node.querySelector('details') : node).closest('details:not([open])')"
    )
    page.wait_for_function(
        "name => Math.abs(document.getElementById(name).getBoundingClientRect().top) < innerHeight", arg=anchor
    )


MARKS = """nodes => nodes.filter((node) => node.checkVisibility())
  .map((node) => [node.getAttribute("tabindex"), node.scrollWidth > node.clientWidth])"""


def test_code_that_scrolls_is_reached_by_keyboard_once_its_fold_is_open(open_page):
    page = open_page(CHAPTER, width=390, mathematics=False)
    folded = page.locator("div.cell details.hide pre")
    assert page.locator("article pre[tabindex]").count() > 0  # what is seen is marked
    for name in ("all details", "all code"):
        switch(page, name).press("Enter")
    page.wait_for_function("document.querySelector('div.cell details.hide pre').tabIndex === 0")
    marks = folded.evaluate_all(MARKS)
    assert len(marks) == folded.count() > 5
    assert all(mark == ("0" if scrolls else "-1") for mark, scrolls in marks)
    page.set_viewport_size({"width": 1280, "height": 900})
    page.wait_for_function("document.querySelector('div.cell details.hide pre').tabIndex === -1")


def test_a_link_on_the_page_opens_what_it_leads_to(open_page):
    page = open_page(CHAPTER, mathematics=False)
    page.evaluate("location.hash = '#thm-agreement'")
    page.wait_for_function("document.getElementById('thm-agreement').checkVisibility()")
    assert opened(page, PROOFS)[0] == 1


def test_a_search_opens_what_it_has_found(browser, addresses):
    context = browser.new_context()  # Sphinx hands over what was searched in the browser's memory
    page = context.new_page()
    page.goto(addresses[False] + "search.html?q=Danskin")
    page.locator(f"ul.search a[href*='{CHAPTER}']").first.click()
    page.wait_for_url(f"**/{CHAPTER}*")
    mark = page.locator("article .highlighted").first
    mark.wait_for(state="visible")
    assert "danskin" in mark.inner_text().lower()
    context.close()


def test_folds_need_no_script(open_page):
    page = open_page(CHAPTER, scripts=False)
    fold = page.locator("details.ao-proof").first
    assert not fold.locator("p").first.is_visible()
    fold.locator("summary").click()
    assert fold.locator("p").first.is_visible()
    assert page.get_by_role("group", name="Show on all pages").count() == 0


def test_print_has_proofs_and_open_code_and_leaves_folded_code_out(open_page):
    page = open_page(CHAPTER, mathematics=False)
    page.emulate_media(media="print")
    for selector in ("details.ao-proof p", "details.ao-section p", "details.ao-solution p"):
        assert page.locator(selector).first.bounding_box()["height"] > 5
    assert not page.locator("div.cell details.hide").first.is_visible()
    assert not page.get_by_role("group", name="Show on all pages").is_visible()
    assert page.locator("div.cell_input pre:visible").count() >= 3


def test_the_head_says_how_long_and_which_symbols(open_page):
    page = open_page(CHAPTER, mathematics=False)
    head = page.locator(".ao-head").inner_text()
    assert head.startswith("About ")
    assert "with the details" in head
    symbols = page.locator("details.ao-symbols")
    symbols.locator("summary").click()
    assert "number of tokens" in symbols.locator("tr").first.inner_text()
