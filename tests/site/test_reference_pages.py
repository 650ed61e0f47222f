"""The front page, the ledger's files, the errata's scripts and the glossary's words, in the built book."""

import csv
import io
import json
import re

import pytest
from conftest import HTML
from explorer_pages import drag
from playwright.sync_api import expect

from attnbook.claims import claims
from attnbook.graph import carried, nodes
from attnbook.joined import FILES, SCHEMAS, errata_json
from attnbook.ledger import contested, downstream

CHAPTER = "regression/softmax_and_lse.html"


def test_front_page_asks_and_shows_in_one_screen(open_page):
    page = open_page("index.html", mathematics=False)
    page.set_viewport_size({"width": 1280, "height": 800})
    explorer = page.locator("div.attnopt-explorer[data-mounted]").first
    explorer.wait_for()
    for picture in explorer.locator("svg").all():
        box = picture.bounding_box()
        assert box["y"] + box["height"] <= 800
    found = page.locator(".ao-short").bounding_box()
    assert found["x"] > 800  # beside the picture
    assert found["y"] + found["height"] <= 800
    for way in ("at the beginning", "one of three routes", "run the code", "in the ledger"):
        assert page.get_by_role("link", name=way).bounding_box()["y"] < 800
    assert page.complaints == []


def test_routes_take_as_long_as_their_chapters_say(open_page):
    page = open_page("index.html", mathematics=False)
    rows = [row.locator("td").all() for row in page.locator("section:has(> #routes) tr:has(td)").all()]
    routes = [
        ([link.get_attribute("href") for link in read.get_by_role("link").all()], time.inner_text())
        for _, read, time in rows
    ]
    evening, weekend = (
        (set(links), float(re.fullmatch(r"(?:about|almost) ([\d.]+) hours", time)[1])) for links, time in routes[:2]
    )
    minutes = {}
    for link in evening[0] | weekend[0]:
        chapter = (HTML / link.partition("#")[0]).read_text(encoding="utf-8")
        minutes[link] = int(re.search(r"About (\d+) minutes to read", chapter)[1])
    for links, hours in (evening, (evening[0] | weekend[0], weekend[1])):
        assert 60 * hours == pytest.approx(sum(minutes[link] for link in links), rel=0.12)
    assert all(link.startswith(("regression/", "in_context/", "clustering/", "synthesis/")) for link in minutes)


def test_ledger_filters_by_chapter(open_page):
    page = open_page("ledger.html", mathematics=False)
    page.get_by_label("chapter").select_option("Loss spikes")
    shown = page.locator(".ao-ledger > details:visible")
    assert shown.count() == sum(node.chapter == "clustering/loss_spikes" for node in nodes().values()) > 0
    shown.first.locator("> summary").press("Enter")
    assert shown.first.get_attribute("open") is not None
    page.reload()
    assert page.get_by_label("chapter").input_value() == "Loss spikes"


def test_ledger_can_be_downloaded_whole(open_page):
    page = open_page("ledger.html", mathematics=False)
    for kind in ("json", "csv"):
        with page.expect_download() as download:
            page.get_by_role("link", name=kind.upper(), exact=True).click()
        text = download.value.path().read_text(encoding="utf-8")
        rows = json.loads(text)["claims"] if kind == "json" else list(csv.DictReader(io.StringIO(text)))
        assert [row["id"] for row in rows] == list(claims())
        assert [row["verdict"] for row in rows] == [row.verdict for row in claims().values()]


def test_files_for_programs_and_their_schemas_are_beside_the_pages():
    for name, text in FILES.items():
        assert (HTML / name).read_text(encoding="utf-8") == text()
    schemas = {path.name: path.read_bytes() for path in SCHEMAS.glob("*.json")}
    assert schemas.keys() == {"ledger-1.schema.json", "errata-1.schema.json"}
    for name, text in schemas.items():
        assert (HTML / name).read_bytes() == text
    for name in ("ledger.json", "errata.json"):
        assert json.loads((HTML / name).read_text(encoding="utf-8"))["$schema"] in schemas


def test_every_card_and_every_erratum_says_how_to_contest_it(open_page):
    page = open_page("ledger.html", mathematics=False)
    words = re.compile("contest this$", re.IGNORECASE)
    there = page.locator(".ao-ledger > details").evaluate_all(
        "cards => cards.map(card => [card.id, [...card.querySelectorAll('a')].at(-1).getAttribute('href')])"
    )
    assert dict(there) == {name: contested(name) or "#contest" for name in nodes()}
    assert page.locator("#contest").count() == 1
    page = open_page("errata.html", mathematics=False)
    for row in json.loads(errata_json())["corrections"]:
        entry = (
            page.locator("p").filter(has=page.locator(f"a[href='ledger.html#{row['id']}']")).filter(has_text=row["severity"])
        )
        assert entry.count() == 1, row["id"]
        link = entry.get_by_role("link", name=words)
        assert link.get_attribute("href") == (contested(row["id"]) or "ledger.html#contest")
    page = open_page(CHAPTER, mathematics=False)
    cards = page.locator("details.ao-claim")
    assert cards.count() > 0
    assert page.locator("details.ao-claim a", has_text=words).count() == cards.count()


def test_the_accessibility_statement_can_be_reached_and_says_what_falls_short(open_page):
    page = open_page("ledger.html", mathematics=False)
    page.goto(page.url.replace("ledger.html", page.locator("nav a[href$='accessibility.html']").first.get_attribute("href")))
    assert page.get_by_role("heading", name="What falls short").is_visible()
    assert page.get_by_text("Nobody who uses a screen reader has tested the book yet").is_visible()


def test_errata_scripts_can_be_downloaded(open_page):
    page = open_page("errata.html", mathematics=False)
    links = page.locator("a.download[href$='.py']")
    assert links.count() == len(list((HTML.parents[1] / "book" / "errata").glob("*.py")))
    answer = page.request.get(page.evaluate("link => link.href", links.first.element_handle()))
    assert answer.ok
    assert "import numpy as np" in answer.text()


def test_no_argument_of_the_package_reads_as_a_list():
    assert "<li></li>" not in (HTML / "api.html").read_text(encoding="utf-8")  # "dim: d." would be item 4


def test_meanings_of_notation_are_on_screen_on_a_phone(open_page):
    page = open_page("notation.html", width=390, mathematics=False)
    for cell in page.locator("#notation td:nth-child(2)").all():
        box = cell.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390


def first_word(page):
    """The first word with a meaning, where nothing scrolls any more: that would hide the meaning."""
    page.locator("div.attnopt-explorer[data-mounted]").first.wait_for()
    word = page.locator("article a:has(.std-term)").first
    word.evaluate("""async (word) => {
      word.scrollIntoView({ block: "center", behavior: "instant" });
      for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
    }""")
    return word


@pytest.mark.parametrize("width", [390, 1280])
def test_a_tap_shows_the_meaning_and_a_second_one_follows(open_page, width):
    page = open_page(CHAPTER, width=width, mathematics=False, has_touch=True)
    word, meaning = first_word(page), page.get_by_role("tooltip")
    word.tap()
    expect(meaning).to_be_visible()
    box = meaning.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    assert CHAPTER in page.url
    page.mouse.move(2, 2)  # where a mouse rests on a device that has one, too
    page.wait_for_timeout(400)
    expect(meaning).to_be_visible()
    word.tap()
    page.wait_for_url("**/glossary.html#term-softmax")


def test_every_card_leads_to_its_place_its_tests_and_its_runs_within_the_site(open_page):
    page = open_page("ledger.html", mathematics=False)
    links = page.locator(".ao-ledger > details").evaluate_all(
        "cards => cards.flatMap(card => [...card.querySelectorAll('a')].map(link => [card.id, link.getAttribute('href')]))"
    )
    ids = {}
    for card, link in links:
        path, _, anchor = link.partition("#")
        if link == contested(card):
            continue
        assert not re.match(r"\w+:", path), (card, link)
        text = ids.setdefault(path, (HTML / (path or "ledger.html")).read_text(encoding="utf-8"))
        assert not anchor or f'id="{anchor}"' in text, (card, link)
    page.goto(page.url + "#odonnat-gradient-bound")
    card = page.locator("#odonnat-gradient-bound")
    card.get_by_role("link", name=re.compile("^test_")).first.click()
    page.wait_for_url("**/_evidence/tests/**#test_*")
    assert page.locator(f"[id='{page.url.partition('#')[2]}']").bounding_box()["y"] < 900
    assert page.complaints == []


def test_errata_show_their_scripts_and_what_they_print(open_page):
    page = open_page("errata.html", mathematics=False)
    folds = page.locator("details.ao-script")
    assert folds.count() == page.locator("a.download[href$='.py']").count()
    entry = page.locator("section", has=page.locator("a", has_text="actor-dissipation.py")).last
    entry.locator("details.ao-script > summary").press("Enter")
    output = (HTML.parents[1] / "book" / "errata" / "actor-dissipation.txt").read_text(encoding="utf-8").strip()
    assert entry.locator(".ao-printed:visible").inner_text().strip() == output
    states = page.locator("article a").evaluate_all(
        "links => links.map(l => l.getAttribute('href')).filter(h => /#\\w+=/.test(h))"
    )
    assert len(states) >= 5
    for state in states:
        opened = open_page(state, mathematics=False)
        name, _, changes = state.partition("#")[2].partition("=")
        opened.locator(
            f"div.attnopt-explorer[data-mounted][id^='{name}'], div.attnopt-explorer[data-mounted]"
        ).first.wait_for()
        assert opened.locator("div.attnopt-explorer [role=alert]:visible", has_text="was left out").count() == 0
        assert f"#{name}=" in opened.url
        assert changes


def test_ledger_finds_words_and_is_open_again_where_a_reader_comes_back(open_page):
    page = open_page("ledger.html", mathematics=False)
    page.get_by_label("search", exact=True).fill("Gauss–Radau")
    rows = page.locator(".ao-ledger > details:visible")
    assert 0 < rows.count() < 10
    card = rows.first
    name = card.get_attribute("id")
    card.locator("> summary").click()
    card.locator("a[href*='.html#']").first.click()
    page.wait_for_url(re.compile(r"(?<!ledger)\.html#"))
    page.go_back()
    page.wait_for_url(f"**/ledger.html#{name}")
    assert page.locator(f"[id='{name}']").get_attribute("open") is not None


def walk(page):
    """The graph of a page and the line about the chosen node."""
    return page.locator(".ao-graph svg"), page.locator(".ao-chosen")


def test_graph_tells_what_stands_on_a_node_by_mouse_and_by_address(open_page):
    page = open_page("graph.html", mathematics=False)
    graph, chosen = walk(page)
    graph.locator("#thm-linear-gradient").click()
    assert nodes()["thm-linear-gradient"].slogan.replace("'", "’") in chosen.inner_text().replace("'", "’")
    assert page.url.endswith("#thm-linear-gradient")
    above = downstream("thm-linear-gradient", carried(nodes()))
    assert set(graph.locator(".ao-node.ao-above").evaluate_all("found => found.map(node => node.id)")) == above
    below = downstream("thm-linear-gradient", {node.id: node.uses + node.proof_uses for node in nodes().values()})
    assert set(graph.locator(".ao-node.ao-below").evaluate_all("found => found.map(node => node.id)")) == below
    for name in above - set(carried(nodes())["thm-linear-gradient"]):  # those that fall through others are listed too
        assert chosen.get_by_role("button", name=nodes()[name].slogan, include_hidden=True).count() == 1
    chosen.get_by_role("button", name=re.compile("Lemma 1")).first.click()
    assert page.url.endswith("#lem-gradient-of-lse")
    chosen.get_by_role("link", name="Its card").click()
    page.wait_for_url("**/ledger.html#lem-gradient-of-lse")
    assert page.locator("#lem-gradient-of-lse").get_attribute("open") is not None
    page.locator("#lem-gradient-of-lse").get_by_role("link", name="In the graph").click()
    page.wait_for_url("**/graph.html#lem-gradient-of-lse")
    page.locator(".ao-node.ao-this").wait_for()
    assert page.complaints == []


def test_graph_is_walked_zoomed_and_left_at_the_keyboard(open_page):
    page = open_page("graph.html", mathematics=False)
    graph, chosen = walk(page)
    first, second = list(nodes())[:2]
    assert graph.locator(".ao-node[tabindex='0']").count() == 1
    graph.locator(f"#{first}").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == second
    whole = graph.get_attribute("viewBox")
    page.keyboard.press("+")
    assert float(graph.get_attribute("viewBox").split()[2]) == pytest.approx(float(whole.split()[2]) / 1.5)
    for _ in range(12):
        page.keyboard.press("ArrowDown")
    box, frame = graph.locator(":focus").bounding_box(), graph.bounding_box()
    assert frame["y"] <= box["y"] <= frame["y"] + frame["height"]  # the view follows
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") in page.url
    page.keyboard.press("0")
    assert graph.get_attribute("viewBox") == whole
    page.keyboard.press("Escape")
    assert graph.locator(".ao-this").count() == 0
    assert "Choose a node" in chosen.inner_text()


def test_graph_is_moved_by_the_mouse_and_zoomed_about_the_pointer(open_page):
    page = open_page("graph.html", mathematics=False)
    graph, _ = walk(page)
    node = graph.locator("#thm-ray")
    node.scroll_into_view_if_needed()
    before = node.bounding_box()
    page.mouse.move(before["x"] + before["width"] / 2, before["y"] + before["height"] / 2)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    page.wait_for_function("width => document.querySelector('.ao-graph svg').viewBox.baseVal.width < width", arg=800)
    near = node.bounding_box()
    assert near["x"] + near["width"] / 2 == pytest.approx(before["x"] + before["width"] / 2, abs=3)
    page.get_by_role("button", name="nearer").click()
    graph.evaluate("svg => svg.scrollIntoView({ block: 'center', behavior: 'instant' })")
    start = node.bounding_box()
    drag(page, graph, 40, 25, steps=5)
    moved = node.bounding_box()
    assert [moved["x"] - start["x"], moved["y"] - start["y"]] == pytest.approx([40, 25], abs=3)
    assert page.url.endswith("graph.html")  # nothing was chosen


def test_graph_filters_nodes_and_table_alike(open_page):
    page = open_page("graph.html", mathematics=False)
    graph, _ = walk(page)
    page.locator("select[name=source]").select_option("ahn")
    page.locator("select[name=evidence]").select_option("measured")
    wanted = {node.id for node in nodes().values() if node.source == "ahn" and node.evidence == "measured"}
    left = graph.locator(".ao-node:not(.ao-out)").evaluate_all("found => found.map(node => node.id)")
    assert set(left) == wanted
    rows = page.locator("tr:not([hidden]) a[data-row]").evaluate_all("found => found.map(link => link.dataset.row)")
    assert set(rows) == wanted
    assert page.locator(".ao-filter output").inner_text() == f"{len(wanted)} of {len(nodes())}"
    page.locator("select[name=evidence]").select_option("")
    page.locator("select[name=source]").select_option("")
    words = page.get_by_label("search", exact=True)
    words.fill("saddle")
    left = graph.locator(".ao-node:not(.ao-out)").evaluate_all("found => found.map(node => node.id)")
    assert 0 < len(left) < 20
    assert graph.locator(".ao-node[tabindex='0']").get_attribute("id") == left[0]
    words.press("Enter")
    assert page.url.endswith(f"#{left[0]}")


def test_graph_is_moved_and_a_node_chosen_by_a_finger(open_page):
    page = open_page("graph.html", width=390, mathematics=False, has_touch=True)
    graph, chosen = walk(page)
    node = graph.locator("#thm-linear-gradient")
    assert node.bounding_box()["width"] >= 7
    node.scroll_into_view_if_needed()
    page.touchscreen.tap(
        *(node.bounding_box()[at] + node.bounding_box()[size] / 2 for at, size in (("x", "width"), ("y", "height")))
    )
    assert "Corollary 1" in chosen.inner_text()
    assert graph.evaluate("svg => getComputedStyle(svg).touchAction") == "none"  # a drag moves the graph, not the page
    page.get_by_role("button", name="show the whole graph").click()
    assert graph.evaluate("svg => getComputedStyle(svg).touchAction") == "pan-y"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
