"""What a link leads to, shown beside it, at the keyboard's focus and under the mouse, from a server or a file."""

import json
import posixpath
import re

import pytest
from conftest import HTML, typeset
from playwright.sync_api import expect
from test_pages import CONTENT, faults

from attnbook.previews import FOLDER

CHAPTER, ALL = "regression/attention_is_a_gradient.html", "synthesis/loops_first.html"
KINDS = {  # an address that a page links to, and what its preview says
    "equation": (ALL, "#equation-eq-order", "log"),
    "theorem": (ALL, "../in_context/optimal_step_sizes.html#thm-landscape-on-s", "Theorem"),
    "claim": (CHAPTER, "../ledger.html#actor-corollary-2", "We find:"),
    "citation": (CHAPTER, "../bibliography.html#", "Attention is all you need"),
    "term": (CHAPTER, "../glossary.html#term-softmax", "Exponentials normalized to sum to one."),
}


def link_of(page, kind):
    """The first link of a kind, opened and in the middle, where nothing scrolls any more: that would hide the preview."""
    _, address, text = KINDS[kind]
    address = address_of(page, text) if kind == "citation" else address
    link = page.locator(f"article a[href='{address}']").last  # the first may be beside what it leads to
    page.locator("div.attnopt-explorer[data-mounted]").first.wait_for()
    link.evaluate("""async (link) => {
      for (let up = link; up; up = up.parentElement) if (up.tagName === "DETAILS") up.open = true;
      link.scrollIntoView({ block: "center", behavior: "instant" });
      for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
    }""")
    return link


def said(page):
    """The previews of a page of the site, by the address in the link."""
    text = (HTML / FOLDER / page).with_suffix(".js").read_text(encoding="utf-8")
    return json.loads(re.fullmatch(r"globalThis\.aoPreviews = (.*);\n", text, re.S)[1])


def address_of(page, text):
    """Where a page links to, by what the preview says."""
    path = next(path for path in (CHAPTER, ALL) if path in page.url)
    return next(address for address, preview in said(path).items() if text.lower() in preview.lower())


@pytest.mark.parametrize(("path", "way"), [(CHAPTER, "served"), (ALL, "served"), (ALL, "file")])
def test_a_link_shows_what_it_leads_to(path, way, open_page, browser):
    context = browser.new_context() if way == "file" else None
    if context:
        page = context.new_page()
        page.goto((HTML / path).as_uri(), wait_until="load")
        typeset(page)
    else:
        page = open_page(path)
    for kind in (kind for kind, (place, *_) in KINDS.items() if place == path):
        assert_shown(page, kind)
    if context:
        context.close()
    else:
        assert page.complaints == []


def assert_shown(page, kind):
    """A link of a kind shows its preview at the focus and under the mouse, and hides it afterward."""
    link, shown = link_of(page, kind), page.get_by_role("tooltip")
    link.focus()
    expect(shown).to_contain_text(re.compile(re.escape(KINDS[kind][2]), re.I))
    assert link.get_attribute("aria-describedby") == shown.get_attribute("id")
    if kind in ("equation", "theorem"):
        expect(shown.locator("mjx-container").first).to_be_visible()
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((node) => node.id)")
    assert shown.evaluate("node => node.querySelectorAll('[id], a, button, input').length") == 0
    assert ids.count("ao-preview") == 1
    page.keyboard.press("Escape")
    expect(shown).to_be_hidden()
    assert link.get_attribute("aria-describedby") is None
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")  # the next link's
    link.hover()
    expect(shown).to_be_visible()
    shown.hover()  # it stays while the mouse is on it
    page.wait_for_timeout(400)
    expect(shown).to_be_visible()
    page.mouse.move(2, 2)
    expect(shown).to_be_hidden()


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_an_open_preview_is_accessible_and_fits(width, scheme, open_page):
    page = open_page(ALL, width=width, scheme=scheme, mathematics=False)
    page.add_style_tag(content="* { transition: none !important; }")
    link, shown = link_of(page, "theorem"), page.get_by_role("tooltip")
    link.focus()
    expect(shown).to_be_visible()
    box = shown.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    assert 0 <= box["y"] <= box["y"] + box["height"] <= 900
    assert faults(page, within="#ao-preview") == []
    expect(shown).to_be_visible()


GAP = """async ([one, other, pause]) => {
  const links = [one, other].map((address) => document.querySelector(`article a[href='${address}']`));
  const wait = (time) => new Promise((done) => setTimeout(done, time));
  links[0].dispatchEvent(new MouseEvent("mouseenter"));
  await wait(600);
  links[0].dispatchEvent(new MouseEvent("mouseleave"));
  await wait(pause);
  links[1].dispatchEvent(new MouseEvent("mouseenter"));
  await wait(220);
  return links[1].getAttribute("aria-describedby");
}"""


@pytest.mark.parametrize("pause", [40, 175, 400])
def test_the_next_link_shows_its_preview_whenever_the_pointer_comes(pause, open_page):
    page = open_page(ALL, mathematics=False)
    page.evaluate("document.querySelectorAll('article details').forEach((node) => { node.open = true; })")
    places = [KINDS["theorem"][1], address_of(page, "Saxe")]
    assert page.evaluate(GAP, [*places, pause]) == "ao-preview"


def test_a_preview_stays_while_its_link_has_the_focus_or_the_pointer_is_in_it(open_page):
    page = open_page(CHAPTER, mathematics=False)
    link, shown = link_of(page, "term"), page.get_by_role("tooltip")
    link.focus()
    expect(shown).to_be_visible()
    link.hover()
    page.mouse.move(2, 2)
    page.wait_for_timeout(500)
    expect(shown).to_be_visible()
    shown.click()  # the link loses the focus
    page.wait_for_timeout(500)
    expect(shown).to_be_visible()
    page.mouse.move(2, 2)
    expect(shown).to_be_hidden()


def test_what_is_in_sight_is_not_shown_again(open_page):
    page = open_page(ALL, mathematics=False)
    equation = page.locator("[id='equation-eq-order']")
    link = link_of(page, "equation")
    equation.evaluate("(node, link) => link.before(node)", link.element_handle())
    link.hover()
    page.wait_for_timeout(600)
    expect(page.get_by_role("tooltip")).to_have_count(0)  # hidden


@pytest.mark.parametrize("page", CONTENT)
def test_every_link_of_these_kinds_has_a_preview(page):
    found, text = said(page), (HTML / page).read_text(encoding="utf-8")
    article = re.sub("<svg.*?</svg>", "", text.partition("<article")[2].partition("</article>")[0], flags=re.S)
    for path, name in re.findall(r'<a class="(?:reference internal|ao-\w+)?[^"]*" href="([\w./-]*)#([\w-]+)"', article):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
        there = (HTML / target).read_text(encoding="utf-8")
        tag = re.search(rf'<[^>]* id="{re.escape(name)}"[^>]*>', there)[0]
        if name.startswith(("equation-", "term-")) or re.search(r'class="(proof |ao-claim)|doc-biblioentry', tag):
            assert f"{path}#{name}" in found
    script = re.search(r'<meta name="ao-previews" content="([^"]+)"', text)[1]
    assert (HTML / page).parent.joinpath(script).is_file()
