"""A Sphinx extension that shows previews next to links to equations, theorems, claims, citations, and glossary terms.

The previews of a page are one script, ``_static/previews/PAGE.js``, which ``book/_static/previews.js`` loads when it is
needed, so they also work in pages opened as files.
"""

import html
import json
import posixpath
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from bs4 import BeautifulSoup, Tag
from sphinx.application import Sphinx

FOLDER = "_static/previews"
LINK = re.compile(r'<a [^>]*href="(?P<page>[\w./-]*)#(?P<name>[\w-]+)"')
SVG = re.compile("<svg.*?</svg>", re.S)  # its links need no previews
KIND = re.compile(r'class="(?:proof|ao-claim)\b|role="doc-biblioentry"')  # of theorems, claims, and papers
CLAIM = 2  # paragraphs of a claim's card: what is claimed, and what we find


def element(text: str, name: str) -> Tag | None:
    """The element of a page with this id, if it is of one of the five kinds; for a glossary term, its definition.

    Args:
        text: the page's HTML.
        name: the element's id.
    """
    at = text.find(f' id="{name}"')
    if at < 0:
        return None
    start = text.rfind("<", 0, at)
    opening = text[start : text.find(">", start) + 1]
    if not (name.startswith(("equation-", "term-")) or KIND.search(opening)):
        return None  # parsing it would take longer than all that is shown
    tag, depth = re.match(r"<(\w+)", opening)[1], 0
    if tag == "dt":  # several terms may share a definition
        tag, start = "dd", text.index("<dd", start)
    for edge in re.compile(rf"<(/?){tag}\b").finditer(text, start):
        depth += -1 if edge[1] else 1
        if depth == 0:
            return BeautifulSoup(text[start : edge.end() + 1], "html.parser").find(tag)
    return None


def preview(node: Tag) -> str:
    """HTML for a tooltip, without links and ids.

    Args:
        node: the element.
    """
    parts = [node]
    if "ao-claim" in node.get("class", ()):
        parts = [node.find("summary"), *node.find_all("p", recursive=False)[:CLAIM]]
        parts[0].name = "p"
    for part in parts:
        for anchor in part.select(".headerlink, script, .backrefs, .label"):
            anchor.decompose()
        for link in part.find_all("a"):
            link.unwrap()
        for inner in [part, *part.find_all(True)]:
            for attribute in ("id", "role", "tabindex", "aria-label"):
                inner.attrs.pop(attribute, None)
    return "".join(
        part.decode_contents() if part.name in ("dd", "div") and not is_block(part) else str(part) for part in parts
    )


def is_block(part: Tag) -> bool:
    """Whether a part keeps its own element, because its style or MathJax needs the element's class."""
    return bool({"math", "proof"} & set(part.get("class") or []))


def previews(page: str, text: str, shown: Callable[[str, str], str]) -> dict[str, str]:
    """The previews of a page's links, by each link's address.

    Args:
        page: the page's path in the site.
        text: the page's HTML.
        shown: a function that returns the preview of an element, or an empty text, given its page's path and its id.
    """
    found = {}
    article = SVG.sub("", text.partition("<article")[2].partition("</article>")[0])
    for link in LINK.finditer(article):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), link["page"])) if link["page"] else page
        found[f"{link['page']}#{link['name']}"] = shown(target, link["name"])
    return {address: said for address, said in found.items() if said}


def write(app: Sphinx, exception: Exception | None) -> None:
    """Write the script with the previews of each page."""
    if exception or app.builder.format != "html":
        return

    @cache
    def read(page: str) -> str:
        path = Path(app.outdir, page)
        return path.read_text(encoding="utf-8") if path.is_file() else ""

    @cache  # many pages link to the same element
    def shown(page: str, name: str) -> str:
        node = element(read(page), name)
        return preview(node) if node else ""

    for name in sorted(app.env.found_docs):
        said = previews(f"{name}.html", read(f"{name}.html"), shown)
        path = Path(app.outdir, FOLDER, f"{name}.js")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"globalThis.aoPreviews = {json.dumps(said, ensure_ascii=False)};\n", encoding="utf-8", newline="\n")


def announce(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object) -> None:
    """Add the address of its previews to a page's head."""
    if doctree is not None:
        place = html.escape(context["pathto"](f"{FOLDER}/{pagename}.js", 1))
        context["metatags"] = context.get("metatags", "") + f'\n<meta name="ao-previews" content="{place}"/>'


def setup(app: Sphinx) -> dict:
    """Register the functions above with Sphinx."""
    app.connect("html-page-context", announce)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
