"""Every page of the built book: quiet, complete, reachable, legible on a phone, accessible."""

import functools
import gzip
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import numpy as np
import pytest
import reading
from axe_playwright_python.sync_playwright import Axe
from conftest import HTML, settled
from explorer_pages import BOOK
from explorer_states import NAMES
from PIL import Image

from attnbook.exercises import answers
from attnbook.graph import nodes

EXPLORER = re.compile(rf"(?:{'|'.join(NAMES)})(?:-[2-9])?=")  # an explorer's state in an address
EVERY = sorted(path.relative_to(HTML).as_posix() for path in HTML.rglob("*.html") if "_static" not in path.parts)
LISTINGS = ("_modules/", "_evidence/")  # of the sources, all alike: one of them stands for all
ONE = "_evidence/tests/test_softmax.html"
ALONE = "embed/"  # explorers without the theme, which test_embed.py opens
PAGES = [page for page in EVERY if not page.startswith((*LISTINGS, ALONE)) or page == ONE]
CONTENT = [page for page in PAGES if page not in ("genindex.html", "search.html", "404.html", ONE)]

# Of text that looks alike by its elements, classes and the attributes that styles ask for, three specimens are enough for
# colors and for the rows' stripes: thousands of Pygments' nodes and the API's signatures would take axe minutes. What
# other pages have shown before (`seen`) counts, too. The head of the page stays, invisible though it is: the theme
# measures it a while after a change of size.
THIN = """([selector, seen]) => {
  const looks = ["class", "style", "fill", "data-verdict", "data-odd", "aria-pressed"];
  const kinds = new Map([[document.body, ""]]);
  const kind = (node) => {
    const own = () => [kind(node.parentElement), node.tagName, ...looks.map((name) => node.getAttribute(name))].join(" ");
    if (!kinds.has(node)) kinds.set(node, own());
    return kinds.get(node);
  };
  const speaks = (node) => node.matches("input, select")
    || [...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim());
  const all = [...document.querySelectorAll(`${selector} *`)], count = new Map(Object.entries(seen)), kept = new Set();
  const keep = (node) => { for (let up = node; up && !kept.has(up); up = up.parentElement) kept.add(up); };
  keep(document.querySelector("#pst-header"));
  for (const node of all.filter((node) => speaks(node) && node.checkVisibility({ visibilityProperty: true }))) {
    const name = kind(node);
    count.set(name, (count.get(name) ?? 0) + 1);
    if (count.get(name) <= 3) keep(node);
  }
  for (const node of all) if (!kept.has(node)) node.remove();
  return Object.fromEntries(count);
}"""
COLORS = ["color-contrast", "link-in-text-block"]
SEEN = {}  # kinds of text, by how many times they were met

# Formulas' insides are not ours; of their boxes, all alike, axe needs to see a few.
PLAIN = """() => document.querySelectorAll("mjx-container").forEach((node, index) => {
  if (index < 3) node.replaceChildren("x"); else node.replaceWith("x");
})"""
FORMULAS = "() => ['.math', 'mjx-container', 'mjx-merror'].map((name) => document.querySelectorAll(name).length)"
CUT = """mathematics => mathematics.filter(node => {
  const scroller = node.closest("p, table, div.math, .pst-scrollable-table-container");
  return node.getBoundingClientRect().right > 390 && !(scroller && getComputedStyle(scroller).overflowX !== "visible")
    && !node.closest("table");
}).length"""
WIDE = """cards => {
  const closed = cards.filter((card) => !card.open);
  for (const card of closed) card.open = true;
  const wide = (card) => [...card.querySelectorAll("p")].some((p) => p.scrollWidth > p.clientWidth + 1);
  const found = cards.filter(wide).map((card) => card.id);
  for (const card of closed) card.open = false;
  return found;
}"""

# What is drawn as the box of a missing sign: each sign of each font, also of ::before and ::after and in closed folds,
# beside one that no font has; of formulas only the signs that MathJax's own fonts lack. Signs of a font that other pages
# have shown (`DRAWN`) are drawn no more.
MISSING = r"""async (before) => {
  const drawn = new Map(), skipped = /\s|\p{Cc}|\p{Cf}|\p{M}/u;
  const note = (text, { fontStyle, fontWeight, fontFamily }) => {
    const font = `${fontStyle} ${fontWeight} 32px ${fontFamily}`;
    if (!drawn.has(font)) drawn.set(font, new Set());
    for (const sign of text) if (!skipped.test(sign)) drawn.get(font).add(sign);
  };
  for (const node of document.body.querySelectorAll("*:not(script, style, template, mjx-container *), mjx-utext")) {
    for (const part of ["::before", "::after"]) {
      const style = getComputedStyle(node, part);
      if (style.content.startsWith('"')) note(JSON.parse(style.content.replace(/\n/g, " ")), style);
    }
    const texts = [...node.childNodes].filter((child) => child.nodeType === Node.TEXT_NODE);
    const text = texts.map((child) => child.data).join("");
    if (text.trim()) note(text, getComputedStyle(node));
  }
  for (const [font, signs] of drawn) for (const sign of before[font] ?? "") signs.delete(sign);
  await Promise.all([...drawn].map(([font, signs]) => document.fonts.load(font, [...signs].join(""))));
  const canvas = Object.assign(document.createElement("canvas"), { width: 64, height: 48 });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const picture = (sign) => {
    context.clearRect(0, 0, 64, 48);
    context.fillText(sign, 8, 36);
    return context.getImageData(0, 0, 64, 48).data.join();
  };
  const found = [];
  for (const [font, signs] of drawn) {
    context.font = font;
    const box = picture("\u0378");
    for (const sign of signs) if (picture(sign) === box) found.push([font, sign, sign.codePointAt(0).toString(16)]);
  }
  return [found, Object.fromEntries([...drawn].map(([font, signs]) => [font, [...signs].join("")]))];
}"""
DRAWN = {}  # the signs that were drawn, by their font

# Faults of the theme and of docutils that cannot be mended from our side, as axe names them.
KNOWN_FAULTS = (
    lambda rule, target: rule == "region" and ".sidebar-primary-item" in target,  # the book's title is in no landmark
    # docutils' lists of references
    lambda rule, target: rule in ("aria-allowed-role", "aria-deprecated-role") and target.startswith("#id"),
    lambda rule, target: rule == "aria-required-children" and target == ".citation-list",
)


@functools.cache
def tags(page):
    """All tags of a page, (name, attributes), in its order; for hundreds of pages a tree of them would take a minute."""
    found, parser = [], HTMLParser()
    parser.handle_starttag = lambda name, attributes: found.append((name, dict(attributes)))
    parser.feed((HTML / page).read_text(encoding="utf-8"))
    parser.close()
    return found


def test_the_book_is_built():
    assert "index.html" in PAGES
    assert "regression/softmax_and_lse.html" in PAGES
    assert "ledger.html" in PAGES


# Only where a rule is broken, and which: all that axe tells of a page takes long to hand over.
BROKEN = """async ([within, options]) => {
  const { violations } = await axe.run(within, { preload: false, resultTypes: ["violations"], ...options });
  return violations.flatMap(({ id, nodes }) => nodes.map(({ target }) => [id, String(target[0])]));
}"""


def faults(opened, within="html", **options):
    """What axe finds in an open page, or within a part of it, beyond the known faults."""
    if not opened.evaluate("'axe' in window"):  # half a megabyte, once a page
        opened.evaluate(Axe().axe_script)
    found = sorted(tuple(fault) for fault in opened.evaluate(BROKEN, [within, options]))
    return [fault for fault in found if not any(known(*fault) for known in KNOWN_FAULTS)]


@functools.cache
def compressed(path):
    return len(gzip.compress(path.read_bytes(), 6))


def weight(page, opened):
    """Bytes that a first visit loads from a server that compresses: the page, what it asked for, and all its pictures."""
    names = "[...performance.getEntriesByType('resource').map(entry => entry.name), ...[...document.images].map(i => i.src)]"
    paths = {HTML / page} | {HTML / unquote(urlsplit(name).path).lstrip("/") for name in opened.evaluate(names)}
    return sum(compressed(path) for path in paths if path.is_file())


def assert_folds_open(page, opened):
    """A link to a folded section opens it."""
    folds = {node.shown for node in nodes().values() if node.place == f"{page}#{node.shown}"}
    for name in sorted(name for name in folds if name.startswith("fold-")):
        fold = opened.locator(f"section:has(> [id='{name}']) > details, section[id='{name}'] > details")
        assert fold.get_attribute("open") is None
        opened.evaluate("name => { location.hash = name; }", name)
        opened.wait_for_function("fold => fold.open", arg=fold.element_handle())


def asking():
    """The exercises with a cell that asks, and their chapters' pages."""
    for path in sorted(BOOK.glob("*/*.md")):
        for name in re.findall(r'^check\("(ex-[\w-]+)", \.\.\.\)', path.read_text(encoding="utf-8"), re.M):
            yield path.relative_to(BOOK).with_suffix(".html").as_posix(), name


# Sends forms as a reader does in tests/site/test_answers.py: what they have as labels, and say to what is no number, to what
# is wrong and to what is right.
ANSWER = """rows => rows.map(([name, value]) => {
  const places = document.querySelectorAll(`.ao-answer[data-name="${name}"]`), [place] = places;
  const input = place.querySelector("input"), form = place.querySelector("form");
  const caption = document.getElementById(name).querySelector(".caption-number").textContent.trim();
  const send = (typed) => {
    input.value = typed;
    form.requestSubmit();
    return form.querySelector("output").textContent.split(" ")[0];
  };
  const forms = places.length === 1 && place.querySelectorAll("form").length;
  const named = input.labels[0].textContent.startsWith(`Your answer to ${caption}`);
  return [forms, named, ...["1,5", "-123456789", value].map(send)];
})"""


def assert_forms_answer(page, opened):
    """A chapter has forms in the places of the cells that ask."""
    assert not opened.evaluate("document.body.textContent.includes('in place of the dots')")
    rows = [(name, str(answers()[name]["value"])) for where, name in asking() if where == page]
    assert opened.evaluate(ANSWER, rows) == [[1, True, "Write", "Not", "Right"]] * len(rows)


def test_there_are_folds_and_forms():
    assert len([node for node in nodes().values() if node.shown.startswith("fold-")]) > 5
    assert {page for page, _ in asking()} <= set(PAGES)
    assert len(list(asking())) > 30


@pytest.mark.parametrize("page", PAGES)
def test_page_is_quiet_typeset_accessible_and_fits_a_phone(page, open_page):
    opened = open_page(page)
    opened.wait_for_function("!document.querySelector('div.attnopt-explorer:not([data-mounted])')")
    settled(opened)
    assert opened.complaints == []
    if page.removesuffix(".html") in reading.chapters():
        assert reading.over(reading.measure(opened)) == []
    formulas, typeset, errors = opened.evaluate(FORMULAS)
    assert typeset >= formulas
    assert errors == 0
    missing, drawn = opened.evaluate(MISSING, DRAWN)
    assert missing == []
    for font, signs in drawn.items():
        DRAWN[font] = DRAWN.get(font, "") + signs
    assert weight(page, opened) <= 1_500_000
    assert_folds_open(page, opened)

    opened.set_viewport_size({"width": 390, "height": 844})
    opened.wait_for_function("document.documentElement.scrollWidth <= 390")  # explorers are drawn again first
    assert opened.locator("article mjx-container:visible").evaluate_all(CUT) == 0  # nothing is out of reach
    assert opened.locator("details.ao-claim").evaluate_all(WIDE) == []

    opened.evaluate(PLAIN)
    opened.set_viewport_size({"width": 1280, "height": 900})
    assert_forms_answer(page, opened)
    opened.evaluate(THIN, [":is(div.highlight pre, dt.sig)", {}])
    opened.add_style_tag(content="* { transition: none !important; }")
    assert opened.evaluate("document.documentElement.dataset.theme") == "light"
    assert faults(opened, rules={name: {"enabled": False} for name in COLORS}) == []
    SEEN.update(opened.evaluate(THIN, ["body", SEEN]))
    assert faults(opened, runOnly=COLORS) == []
    opened.emulate_media(color_scheme="dark")  # the same page: only colors change
    opened.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    assert faults(opened, runOnly=COLORS) == []
    assert opened.complaints == []


def test_thinning_leaves_what_the_theme_measures_later(open_page):
    opened = open_page("changelog.html", mathematics=False)
    for width in (390, 1280):
        opened.set_viewport_size({"width": width, "height": 900})
    opened.evaluate(THIN, ["body", {}])
    opened.wait_for_timeout(1000)  # a third of a second after a change of size, later on a busy machine
    assert opened.complaints == []


def test_a_figure_keeps_a_legible_size_on_a_phone_and_scrolls(open_page):
    opened = open_page("ledger.html", mathematics=False)
    opened.set_viewport_size({"width": 390, "height": 844})
    frame = opened.locator("figure > .pst-scrollable-table-container")
    opened.wait_for_function("frame => frame.tabIndex === 0", arg=frame.element_handle())
    assert frame.locator("img").evaluate("image => image.clientWidth") == 560
    frame.press("ArrowRight")
    opened.wait_for_function("frame => frame.scrollLeft > 0", arg=frame.element_handle())
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390


def test_internal_links_resolve():
    anchors = {page: Counter(has["id"] for _, has in tags(page) if has.get("id")) for page in EVERY}
    assert [(page, name) for page, found in anchors.items() for name, times in found.items() if times > 1] == []
    broken = []
    listings = {page.count("/"): page for page in EVERY if page.startswith(LISTINGS)}  # they share their sidebar by depth
    for page in {*PAGES, *listings.values()}:
        for kind, link in tags(page):
            target = kind in ("a", "img", "link", "script") and (link.get("href") or link.get("src"))
            if not target or urlsplit(target).scheme or target.startswith("//"):
                continue
            path, anchor = urldefrag(target)
            path = unquote(urlsplit(path).path)
            there = (Path(page).parent / path) if path else Path(page)
            resolved = (HTML / there).resolve()
            if not resolved.is_file():
                broken.append((page, target))
            elif anchor and resolved.suffix == ".html" and not EXPLORER.match(anchor):
                name = resolved.relative_to(HTML.resolve()).as_posix()
                if anchor not in anchors.get(name, {anchor}):
                    broken.append((page, target))
    assert broken == []


def test_no_page_names_a_third_party_that_it_would_load():
    for page in PAGES:
        for kind, tag in tags(page):
            loads = {"script": "src", "img": "src", "iframe": "src", "link": "href"}
            target = tag.get(loads.get(kind))
            assert not (target and urlsplit(target).netloc), (page, target)


@pytest.mark.parametrize("page", CONTENT)
def test_every_picture_has_a_text(page):
    for image in (has for kind, has in tags(page) if kind == "img"):
        assert (image.get("alt") or "").strip(), image.get("src")
        assert not image["alt"].startswith("../_images"), image["alt"]
        assert image["loading"] == "lazy"
        assert int(image["width"]) > 0 < int(image["height"])  # room is kept: nothing jumps when it comes


@pytest.mark.parametrize("page", CONTENT)
def test_page_has_a_preview(page):
    found = {has["property"]: has["content"] for kind, has in tags(page) if kind == "meta" and has.get("property")}
    assert found["og:title"]
    assert found["og:site_name"] == "Attention as Optimization"
    picture = (HTML / page).parent.joinpath(found["og:image"])
    assert picture.is_file()
    if "/" in page:  # a chapter has its own card
        assert picture == (HTML / page).parent / "../_static/cards" / page.replace(".html", ".png")
        with Image.open(picture) as card:
            assert card.size == (1200, 630)
            darkness = np.asarray(card.convert("L")) < 200
        assert darkness[:130].mean() > 0.01  # a title
        assert darkness[150:560].mean() > 0.005  # a picture
    if page not in ("changelog.html", "ledger.html"):  # they have no paragraph
        assert 20 < len(found["og:description"]) <= 202


def test_a_wrong_address_finds_the_way_back(open_page):
    opened = open_page("404.html", mathematics=False)
    assert opened.locator("base").get_attribute("href") == "/"
    opened.get_by_role("link", name="the front page").click()
    assert opened.locator("h1").first.inner_text().startswith("Attention as Optimization")


@pytest.mark.parametrize("page", [page for page in CONTENT if "/" in page])
def test_page_reads_without_scripts(page, open_page):
    opened = open_page(page, scripts=False)
    assert opened.locator("article h1").count() == 1
    assert opened.locator("div.attnopt-explorer img").count() == opened.locator("div.attnopt-explorer").count()
    still = opened.locator("article img").first
    still.evaluate("async image => { image.scrollIntoView(); await image.decode(); return null; }")
    assert still.evaluate("image => image.naturalWidth") > 300
    assert r"\(" in opened.locator("article").inner_text()  # mathematics is legible as its source


def test_notebook_can_be_downloaded(open_page):
    opened = open_page("regression/softmax_and_lse.html", mathematics=False)
    link = opened.locator("a.btn-download-source-button, a[href$='.ipynb']").first
    target = link.get_attribute("href")
    assert target.endswith(".ipynb")
    response = opened.request.get(opened.evaluate("target => new URL(target, location.href).href", target))
    assert response.ok
    assert response.json()["nbformat"] == 4


def test_solutions_open_and_close(open_page):
    opened = open_page("regression/softmax_and_lse.html", mathematics=False)
    first = opened.locator("details.ao-solution").first
    hidden = first.locator("p").first
    assert not hidden.is_visible()
    first.locator("summary").press("Enter")
    hidden.wait_for(state="visible")


def test_a_set_up_cell_is_folded_and_opens_by_keyboard(open_page):
    opened = open_page("regression/softmax_and_lse.html", mathematics=False)
    cell = opened.locator("details.hide").first
    code, summary = cell.locator("pre"), cell.locator("summary")
    assert "import torch" in code.text_content()
    assert not code.is_visible()
    assert "Code" in summary.text_content()
    summary.press("Enter")
    code.wait_for(state="visible")
    assert "Hide code" in summary.inner_text()
    summary.press("Space")
    code.wait_for(state="hidden")
    opened.emulate_media(media="print")
    assert not summary.is_visible()


def test_ledger_filters_by_paper_and_verdict(open_page):
    opened = open_page("ledger.html", mathematics=False)
    rows = opened.locator(".ao-ledger > details")
    total = rows.count()
    assert opened.locator(".ao-filter output").inner_text() == f"{total} of {total} claims and theorems"
    opened.get_by_label("paper").select_option("actor")
    opened.get_by_label("verdict").select_option("corrected")
    shown = opened.locator(".ao-ledger > details:visible")
    assert 0 < shown.count() < total
    for row in shown.all():
        assert row.get_attribute("data-paper") == "actor"
        assert row.get_attribute("data-verdict") == "corrected"
    assert "paper=actor" in opened.url
    opened.reload()
    assert opened.get_by_label("paper").input_value() == "actor"
    assert 0 < opened.locator(".ao-ledger > details:visible").count() < total


def test_ledger_deep_link_opens_its_row(open_page):
    opened = open_page("ledger.html?verdict=holds#actor-corollary-2", mathematics=False)
    row = opened.locator("#actor-corollary-2")
    assert row.get_attribute("open") is not None
    assert row.is_visible()
    assert opened.get_by_label("verdict").input_value() == ""


def test_a_chapters_card_leads_to_its_row(open_page):
    opened = open_page("regression/attention_is_a_gradient.html", mathematics=False)
    opened.locator("summary", has_text="Corollary 1").first.press("Enter")
    opened.locator(".ao-claims a[href$='ledger.html#actor-corollary-1']").first.click()
    opened.wait_for_url("**/ledger.html#actor-corollary-1")
    assert opened.locator("#actor-corollary-1").get_attribute("open") is not None
