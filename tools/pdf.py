"""The whole book as one PDF: Chromium prints the built pages in order; they are bound, numbered, linked and bookmarked.

Links from page to page become links inside the file. Explorers show their stills.
"""

import contextlib
import functools
import html
import http.server
import io
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import yaml
from bs4 import BeautifulSoup
from playwright.sync_api import Browser, Page, sync_playwright
from pypdf import PageObject, PdfReader, PdfWriter
from pypdf.generic import ArrayObject, DictionaryObject, Fit, FloatObject, NameObject, NullObject

from attnbook.chromium import launch

ROOT = Path(__file__).resolve().parent.parent
HTML = ROOT / "_build" / "html"
TITLE = "Attention as Optimization"
MARGINS = {"top": "20mm", "bottom": "20mm", "left": "18mm", "right": "18mm"}
SCALE = 0.8  # 84 columns of code fill a line
COVER = f"""<div class="leaf cover"><div class="rule"></div><h1>{TITLE}</h1>
<p>What three lines of work prove and measure about transformers,<br>derived again, run again, and judged.</p>
<p class="small">The executable book in print. Every cell was executed, and every printed output compared, by the test suite.
Explorers are stills here; they move on the pages of the site and in the notebooks. The scripts of the errata are attached
to this file.</p></div>"""
STYLE = (ROOT / "tools" / "pdf.css").read_text(encoding="utf-8")


@dataclass
class Sheet:
    """A page of the site on its way into the book."""

    name: str
    part: str = ""
    title: str = ""
    sections: list[tuple[str, str]] = field(default_factory=list)  # anchor and heading
    reader: PdfReader | None = None
    first: int = 0  # its first page in the bound book, from 0


def table_of_contents(path: Path = ROOT / "_toc.yml") -> list[Sheet]:
    """The site's pages in reading order."""
    contents = yaml.safe_load(path.read_text(encoding="utf-8"))
    found = [Sheet(contents["root"])]
    return found + [Sheet(c["file"], part["caption"]) for part in contents["parts"] for c in part["chapters"]]


def anchors_wanted(sheets: list[Sheet], folder: Path = HTML) -> dict[str, set[str]]:
    """For each page the places in it that some page links to, and its sections; fills in titles and sections."""
    wanted = {sheet.name: set() for sheet in sheets}
    for sheet in sheets:
        article = BeautifulSoup((folder / f"{sheet.name}.html").read_text(encoding="utf-8"), "html.parser").article
        for node in article.select("a.headerlink"):
            node.decompose()
        sheet.title = " ".join(article.h1.get_text().split())
        sheet.sections = [
            (h2.parent["id"], " ".join(h2.get_text().split())) for h2 in article.find_all("h2") if h2.parent.get("id")
        ]
        wanted[sheet.name] |= {anchor for anchor, _ in sheet.sections}
        for link in article.find_all("a", href=True):
            name, anchor = target(urljoin(f"/{sheet.name}.html", link["href"]))
            if anchor and name in wanted:
                wanted[name].add(anchor)
    return wanted


def target(address: str) -> tuple[str, str]:
    """The page and the place in it that an address from the site's root names."""
    path, anchor = urldefrag(address)
    return unquote(path.lstrip("/")).removesuffix(".html"), unquote(anchor)


def print_page(page: Page, address: str, anchors: set[str]) -> PdfReader:
    """One page of the site, with a named destination for every anchor."""
    page.goto(address, wait_until="load")
    page.evaluate("async () => { await window.MathJax?.startup?.promise; return null; }")
    # Chromium writes a destination for what a link of the same page names.
    page.evaluate(
        """async anchors => {
          const hidden = document.createElement("div");
          hidden.hidden = true;
          hidden.append(...anchors.map(anchor => Object.assign(document.createElement("a"), { href: `#${anchor}` })));
          document.body.append(hidden);
          for (const details of document.querySelectorAll("details")) details.open = true;
          for (const image of document.images) image.loading = "eager";
          await Promise.all([...document.images].map(image => image.decode().catch(() => null)));
          await document.fonts.ready;
        }""",
        sorted(anchors),
    )
    return PdfReader(io.BytesIO(page.pdf(format="A4", margin=MARGINS, scale=SCALE, print_background=True)))


def print_leaves(browser: Browser, leaves: list[str], base: str) -> PdfReader:
    """Pages without margins, from HTML; links in it are relative to the site."""
    page = browser.new_page()
    page.set_content(f'<base href="{base}"><style>{STYLE}</style>{"".join(leaves)}')
    printed = page.pdf(format="A4", print_background=True, prefer_css_page_size=True)
    page.close()
    return PdfReader(io.BytesIO(printed))


def contents(sheets: list[Sheet]) -> str:
    """The table of contents."""
    lines, part = [], None
    for sheet in sheets:
        if sheet.part != part:
            part = sheet.part
            lines.append(f"<h2>{html.escape(part)}</h2>")
        title = html.escape(sheet.title)
        link = f'<a href="{sheet.name}.html">{title}</a><i></i><a href="{sheet.name}.html">{sheet.first + 1}</a>'
        lines.append(f'<div class="line">{link}</div>')
    return f'<div class="contents"><h1>Contents</h1>{"".join(lines)}</div>'


def bind(front: PdfReader, sheets: list[Sheet], numbers: PdfReader | None, base: str) -> PdfWriter:
    """Front matter and printed pages as one document: links made internal, bookmarks, page numbers laid over."""
    writer = PdfWriter()
    places: dict[tuple[str, str], tuple[int, float]] = {}
    for sheet in sheets:
        places[sheet.name, ""] = sheet.first, 842.0
        for name, destination in sheet.reader.named_destinations.items():
            number = sheet.reader.get_destination_page_number(destination)
            places[sheet.name, unquote(name.lstrip("/"))] = sheet.first + number, float(destination.top)
    owners: list[str] = []
    for name, reader in [("", front), *((sheet.name, sheet.reader) for sheet in sheets)]:
        for page in reader.pages:
            writer.add_page(page)
            owners.append(name)
    for number, (page, owner) in enumerate(zip(writer.pages, owners, strict=True)):
        if numbers is not None and number:
            page.merge_page(numbers.pages[number])
        relink(page, owner, places, writer, base)
        page.compress_content_streams()
    part, above = "", None
    for sheet in sheets:
        if sheet.part != part:
            part, above = sheet.part, writer.add_outline_item(title=sheet.part, page_number=sheet.first)
        chapter = writer.add_outline_item(title=sheet.title, page_number=sheet.first, parent=above)
        for anchor, heading in sheet.sections:
            number, top = places.get((sheet.name, anchor), (None, None))
            if number is not None:
                writer.add_outline_item(title=heading, page_number=number, parent=chapter, fit=Fit.xyz(top=top))
    writer.compress_identical_objects()
    return writer


def relink(page: PageObject, owner: str, places: dict, writer: PdfWriter, base: str) -> None:
    """Turn a page's links to places in the book into links inside the document."""
    gone = []
    for reference in page.get("/Annots", ArrayObject()):
        link = reference.get_object()
        if link.get("/Subtype") != "/Link":
            continue
        address = str(link.get("/A", DictionaryObject()).get("/URI", ""))
        if "/Dest" in link:
            place = owner, unquote(str(link["/Dest"]).lstrip("/"))
        elif address.startswith(base):
            place = target(address.removeprefix(base))
        else:
            continue
        number, top = places.get(place) or places.get((place[0], "")) or (None, None)
        link.pop("/A", None)
        link.pop("/Dest", None)
        if number is None:  # a script, which the reader finds among the attachments
            gone.append(reference)
        else:
            where = [NameObject("/XYZ"), NullObject(), FloatObject(top), NullObject()]
            link[NameObject("/Dest")] = ArrayObject([writer.pages[number].indirect_reference, *where])
    for reference in gone:
        page["/Annots"].remove(reference)


@contextlib.contextmanager
def served(folder: Path):
    """The address at which a folder is served on localhost."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | {".js": "text/javascript"}

        def log_message(self, *arguments):
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://localhost:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()


def main(output: Path) -> None:
    """Print the built book."""
    sheets = table_of_contents()
    wanted = anchors_wanted(sheets)
    with served(HTML) as base, sync_playwright() as playwright:
        browser = launch(playwright)
        context = browser.new_context(color_scheme="light", viewport={"width": 1000, "height": 1400})
        context.set_default_timeout(300_000)
        # Explorers stay stills.
        context.route("**/explorers/host.js*", lambda route: route.fulfill(content_type="text/javascript", body=""))
        for sheet in sheets:
            page = context.new_page()
            sheet.reader = print_page(page, f"{base}{sheet.name}.html", wanted[sheet.name])
            page.close()
            print(f"  {sheet.name}: {len(sheet.reader.pages)} pages", flush=True)
        front = print_leaves(browser, [COVER, contents(sheets)], base)
        place = len(front.pages)
        for sheet in sheets:
            sheet.first, place = place, place + len(sheet.reader.pages)
        front = print_leaves(browser, [COVER, contents(sheets)], base)  # with the right numbers
        heads = [""] * len(front.pages) + [sheet.title for sheet in sheets for _ in sheet.reader.pages]
        leaf = '<div class="leaf"><div class="head">{}</div><div class="foot">{}</div></div>'
        numbers = print_leaves(browser, [leaf.format(html.escape(head), n) for n, head in enumerate(heads, 1)], base)
        browser.close()
    writer = bind(front, sheets, numbers, base)
    writer.add_metadata({"/Title": TITLE, "/Author": "The Attention as Optimization contributors"})
    writer.page_mode = "/UseOutlines"
    for script in sorted((ROOT / "book" / "errata").glob("*.py")):
        writer.add_attachment(script.name, script.read_bytes())
    output.parent.mkdir(parents=True, exist_ok=True)
    writer.write(output)
    print(f"{output}: {len(writer.pages)} pages, {output.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "_build" / "attention-as-optimization.pdf")
