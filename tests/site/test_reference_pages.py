"""The front page, the ledger's files, the errata's scripts and the glossary's words, in the built book."""

import csv
import io
import json
import re

import pytest
from conftest import HTML
from playwright.sync_api import expect

from bookkit.claims import claims

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
    for way in ("one gradient step", "from the beginning", "by a route", "run it", "in the ledger"):
        assert page.get_by_role("link", name=way).bounding_box()["y"] < 800
    assert page.complaints == []


def test_routes_take_as_long_as_their_chapters_say(open_page):
    page = open_page("index.html", mathematics=False)
    rows = [row.locator("td").all() for row in page.locator("#routes tr:has(td)").all()]
    routes = [
        ([link.get_attribute("href") for link in read.get_by_role("link").all()], time.inner_text())
        for _, read, time in rows
    ]
    evening, weekend = ((set(links), float(re.fullmatch(r"about ([\d.]+) hours", time)[1])) for links, time in routes[:2])
    minutes = {}
    for link in evening[0] | weekend[0]:
        chapter = open_page(link.partition("#")[0], mathematics=False)
        minutes[link] = int(re.search(r"About (\d+) minutes to read", chapter.locator("article").inner_text())[1])
    for links, hours in (evening, (evening[0] | weekend[0], weekend[1])):
        assert 60 * hours == pytest.approx(sum(minutes[link] for link in links), rel=0.12)
    assert all(link.startswith(("regression/", "in_context/", "clustering/", "synthesis/")) for link in minutes)


def test_map_links_every_chapter_and_is_legible_on_a_phone(open_page):
    page = open_page("index.html", width=390, scheme="dark", mathematics=False)
    chapters = {link.get_attribute("href") for link in page.locator(".toctree-l1 a[href*='/']").all()}
    boxes = page.locator(".ao-map a")
    assert {box.get_attribute("href") for box in boxes.all()} == chapters
    for text in page.locator(".ao-map text").all():
        box = text.bounding_box()
        assert box["height"] >= 11
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    boxes.first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/softmax_and_lse.html")


def test_ledger_filters_by_chapter(open_page):
    page = open_page("ledger.html", mathematics=False)
    page.get_by_label("chapter").select_option("Loss spikes")
    shown = page.locator(".ao-ledger details:visible")
    assert shown.count() == sum(row.chapter == "clustering/loss_spikes" for row in claims().values()) > 0
    shown.first.locator("summary").press("Enter")
    assert shown.first.get_attribute("open") is not None
    page.reload()
    assert page.get_by_label("chapter").input_value() == "Loss spikes"


def test_ledger_can_be_downloaded_whole(open_page):
    page = open_page("ledger.html", mathematics=False)
    for kind in ("json", "csv"):
        with page.expect_download() as download:
            page.get_by_role("link", name=kind.upper(), exact=True).click()
        text = download.value.path().read_text(encoding="utf-8")
        rows = json.loads(text) if kind == "json" else list(csv.DictReader(io.StringIO(text)))
        assert [row["id"] for row in rows] == list(claims())
        assert [row["verdict"] for row in rows] == [row.verdict for row in claims().values()]


def test_cards_fit_a_phone(open_page):
    page = open_page("ledger.html", width=390)
    page.evaluate("document.querySelectorAll('details').forEach((row) => { row.open = true; })")
    wide = """cards => cards.filter((card) => [...card.querySelectorAll("p")].some((p) => p.scrollWidth > p.clientWidth + 1))
      .map((card) => card.id)"""
    assert page.locator(".ao-claim").evaluate_all(wide) == []


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


def test_a_word_shows_its_meaning_at_the_keyboard_and_under_the_mouse(open_page):
    page = open_page(CHAPTER, mathematics=False)
    word, meaning = page.locator("article a:has(.std-term)").first, page.get_by_role("tooltip")
    word.focus()
    expect(meaning).to_contain_text("Exponentials normalised to sum to one.")
    assert word.get_attribute("aria-describedby") == meaning.get_attribute("id")
    page.keyboard.press("Escape")
    expect(meaning).to_be_hidden()
    page.keyboard.press("Tab")
    word.hover()
    expect(meaning).to_be_visible()
    meaning.hover()  # it stays while the mouse is on it
    page.wait_for_timeout(400)
    expect(meaning).to_be_visible()
    page.mouse.move(2, 2)
    expect(meaning).to_be_hidden()
    assert page.complaints == []


@pytest.mark.parametrize("width", [390, 1280])
def test_a_tap_shows_the_meaning_and_a_second_one_follows(open_page, width):
    page = open_page(CHAPTER, width=width, mathematics=False, has_touch=True)
    word, meaning = page.locator("article a:has(.std-term)").first, page.get_by_role("tooltip")
    word.tap()
    expect(meaning).to_be_visible()
    box = meaning.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    assert CHAPTER in page.url
    word.tap()
    page.wait_for_url("**/glossary.html#term-softmax")
