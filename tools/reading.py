"""What a reader meets on each page of the built book as it opens: how soon a picture, how much code, how many screens.

    python tools/reading.py [PAGE ...]

Pages are named as in ``regression/softmax_and_lse``; all chapters unless named. `BUDGETS` is what a chapter keeps to,
measured at 1280 × 900; the tests of the built site hold the chapters to it.
"""

import sys
import tomllib
from pathlib import Path

from pdf import HTML, served
from playwright.sync_api import Page, sync_playwright

from attnbook.chromium import launch

ROOT = Path(__file__).resolve().parent.parent
SCREEN = {"width": 1280, "height": 900}
BUDGETS = {"first": 1.0, "code": 0.12, "pictures": 5, "screens": 14.0}
STATED = ("what-the-papers-say", "what-this-chapter-states")
APPARATUS = ("exercises", *STATED, "related-work", "references")  # sections that need no picture
MEASURE = """apparatus => {
  const article = document.querySelector("article"), box = (node) => node.getBoundingClientRect();
  const top = box(article).top, height = box(article).height;
  const shown = (node) => box(node).height > 1 && node.checkVisibility({ visibilityProperty: true });
  const all = (selector, root = article) => [...root.querySelectorAll(selector)].filter(shown);
  const PICTURES = "figure, div.attnopt-explorer";
  const pictures = all(PICTURES).filter((node) => !node.parentElement.closest(PICTURES));
  const CODE = ".cell_input, .highlight-python";
  const code = all(CODE).filter((node) => !node.parentElement.closest(CODE));
  const bare = all(":scope > section > section").filter((node) => !apparatus.includes(node.id))
    .filter((node) => !all(`${PICTURES}, table, .ao-claims`, node).length).map((node) => node.id);
  return {
    screens: height / 900,
    first: pictures.length ? (box(pictures[0]).top - top) / 900 : null,
    pictures: pictures.length,
    code: code.reduce((sum, node) => sum + box(node).height, 0) / height,
    bare,
  };
}"""


def measure(page: Page) -> dict:
    """What an opened page shows: screens, first picture, how many, share of code, sections without a picture."""
    page.set_viewport_size(SCREEN)
    return page.evaluate(MEASURE, APPARATUS)


def over(found: dict) -> list[str]:
    """The budgets that a page breaks, in words."""
    broken = []
    if found["first"] is None or found["first"] > BUDGETS["first"]:
        broken.append(f"first picture after {found['first'] or found['screens']:.1f} screens")
    if found["code"] > BUDGETS["code"]:
        broken.append(f"code takes {100 * found['code']:.0f}% of the height")
    if found["pictures"] < BUDGETS["pictures"]:
        broken.append(f"{found['pictures']} pictures and explorers")
    if found["screens"] > BUDGETS["screens"]:
        broken.append(f"{found['screens']:.1f} screens")
    return [*broken, *(f"no picture, explorer or table in the section {name}" for name in found["bare"])]


def chapters() -> list[str]:
    """All chapters of the book, in its order."""
    table = tomllib.loads((ROOT / "book" / "chapters.toml").read_text(encoding="utf-8"))
    return [f"{part['folder']}/{chapter['name']}" for part in table["part"] for chapter in part["chapter"]]


def main(names: list[str]) -> None:
    """Print a line a page."""
    print(f"{'page':36} screens  first  pictures  code")
    with served(HTML) as base, sync_playwright() as playwright:
        browser = launch(playwright)
        page = browser.new_page(viewport=SCREEN)
        for name in names or chapters():
            page.goto(f"{base}{name}.html", wait_until="networkidle")
            found = measure(page)
            first = "none" if found["first"] is None else f"{found['first']:.1f}"
            line = f"{name:36} {found['screens']:7.1f} {first:>6} {found['pictures']:9} {100 * found['code']:4.0f} %"
            print("; ".join([line, *over(found)]))
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
