"""A Sphinx extension for link previews, image loading, a site map, and a 404 page.

The environment variable ``BOOK_URL`` gives the address of the site; without it, no page names an address.
"""

import html
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from attnbook.folder import cited

PREVIEW = "_static/preview.png"
LENGTH = 200  # characters of a description
IMAGE = re.compile(r'<img (?=[^>]*src="(?P<source>[^"]+\.png)")(?![^>]*\b(?:width|loading)=)')
# A figure's image; in a container of this class, readers can scroll what overflows with the keyboard.
FIGURE = re.compile(r"(<figure[^>]*>\s*)(<img [^>]*>)")
SCROLLING = r'\1<div class="pst-scrollable-table-container">\2</div>'
# A formula with the brackets and the punctuation that touch it.
TOUCHING = re.compile(r'[(\[“]*<span class="math notranslate nohighlight">\\\(.*?\\\)</span>[^\s<]*', re.S)
FOLD = re.compile(r'(<summary) aria-label="Toggle hidden content"')  # its visible text is its name
REPEATED = re.compile(r'(<(?:section|div)[^>]*?) id="(?:proof|(?:proof|exercise|solution)-content)"')
LOST = """<h1>There is no such page</h1>
<p>The address may be mistyped, or the page may have moved.
Go to <a href="index.html">the front page</a>, or <a href="search.html">search the book</a>.</p>"""


def description(doctree: nodes.document | None) -> str:
    """The beginning of a page's first paragraph, in whole words."""
    paragraph = next(doctree.findall(nodes.paragraph), None) if doctree else None
    text = " ".join(paragraph.astext().split()) if paragraph else ""
    return text if len(text) <= LENGTH else text[:LENGTH].rsplit(" ", 1)[0] + " …"


def png_size(path: Path) -> tuple[int, int]:
    """Width and height of a PNG, from its header."""
    return struct.unpack(">II", path.read_bytes()[16:24])


def sized(body: str, sources: dict[str, Path]) -> str:
    """The page with images of known size that load when they come near, and figures that can scroll sideways."""

    def attributes(found: re.Match) -> str:
        source = sources.get(found["source"].rsplit("/", 1)[-1])
        if source is None:
            return found[0]
        width, height = png_size(source)
        return f'<img loading="lazy" decoding="async" width="{width}" height="{height}" '

    return FIGURE.sub(SCROLLING, IMAGE.sub(attributes, body))


def joined(body: str) -> str:
    """The page without line breaks between formulas and the punctuation that touches them."""
    return TOUCHING.sub(lambda found: f'<span class="ao-joined">{found[0]}</span>', body)


def prepare(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: nodes.document | None) -> None:
    """Add the preview to a page's head, and correct its body."""
    address, picture = app.config.html_baseurl, context.get("ao_card", PREVIEW)
    title = re.sub(r"<[^>]+>", "", context.get("title") or app.config.html_title)
    properties = {
        "og:type": "article" if doctree else "website",
        "og:site_name": app.config.html_title,
        "og:title": html.unescape(title),
        "og:description": description(doctree),
        "og:image": urljoin(address, picture) if address else context["pathto"](picture, 1),
        "og:url": urljoin(address, app.builder.get_target_uri(pagename)) if address else "",
    }
    tags = [f'<meta property="{name}" content="{html.escape(text)}"/>' for name, text in properties.items() if text]
    if properties["og:description"]:
        tags.append(f'<meta name="description" content="{html.escape(properties["og:description"])}"/>')
    if pagename == "404":  # it is shown at any depth: its links start at the site's root
        tags.insert(0, f'<base href="{urlsplit(address).path or "/"}"/>')
    known = re.sub(r'<meta name="viewport"[^>]*>\n?', "", context.get("metatags", ""))  # the theme has its own
    context["metatags"] = known + "\n".join(tags)
    if "body" in context:
        sources = {name: Path(app.srcdir, path) for path, name in app.builder.images.items()}
        context["body"] = FOLD.sub(r"\1", REPEATED.sub(r"\1", joined(sized(context["body"], sources))))


def share_sidebar(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: nodes.document | None) -> None:
    """Resolve the sidebar once for all listings at the same depth: it lists none of them, and each time takes 0.05 s."""
    if doctree is None:
        found, resolve = app.ao_sidebars, context["toctree"]

        def toctree(**options: object) -> str:
            key = pagename.count("/"), *sorted(options.items())
            if key not in found:
                found[key] = resolve(**options)
            return found[key]

        context["toctree"] = toctree


def renumber(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Restart numbers of theorems, equations, and exercises on each page, as in its notebook; figures keep theirs."""
    for kinds in env.toc_fignumbers.values():
        for kind, numbers in kinds.items():
            if kind != "figure":
                numbers.update({name: (count,) for count, name in enumerate(sorted(numbers, key=numbers.get), 1)})
    return []


def lost(app: Sphinx) -> Iterator[tuple[str, dict, str]]:
    """The page for addresses that do not exist."""
    yield "404", {"title": "There is no such page", "body": LOST}, "page.html"


def write_map(app: Sphinx, exception: Exception | None) -> None:
    """List the pages for search engines, if the site's address is known."""
    if exception or app.builder.format != "html" or not app.config.html_baseurl:
        return
    places = (urljoin(app.config.html_baseurl, app.builder.get_target_uri(name)) for name in sorted(app.env.found_docs))
    lines = "".join(f"  <url><loc>{html.escape(place)}</loc></url>\n" for place in places)
    text = f'<?xml version="1.0" encoding="utf-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{lines}</urlset>\n'
    Path(app.outdir, "sitemap.xml").write_text(text, encoding="utf-8", newline="\n")


def drop_icon_script(app: Sphinx, exception: Exception | None) -> None:
    """Empty the theme's icon script, which weighs half a megabyte; the style sheet already has the icons as a font."""
    script = Path(app.outdir, "_static", "scripts", "fontawesome.js")
    if not exception and script.exists():
        script.write_text("// The icons come from the style sheet's font.\n", encoding="utf-8", newline="\n")


def locate(app: Sphinx, config) -> None:
    """Take the site's address from the environment; offer Binder and Colab if the repository has an address."""
    if address := cited("repository-code").rstrip("/"):
        buttons = {"notebook_interface": "jupyterlab", "binderhub_url": "https://mybinder.org"}
        buttons |= {"colab_url": "https://colab.research.google.com"} if "//github.com/" in address else {}
        about = {"repository_url": address, "repository_branch": "main", "path_to_docs": "book", "launch_buttons": buttons}
        config.html_theme_options = config.html_theme_options | about
    config.html_baseurl = os.environ.get("BOOK_URL", "").rstrip("/") + "/" if os.environ.get("BOOK_URL") else ""


def setup(app: Sphinx) -> dict:
    """Register the functions above with Sphinx."""
    app.ao_sidebars = {}
    app.connect("config-inited", locate)
    app.connect("html-page-context", share_sidebar, priority=100)  # before the theme renders it
    app.connect("env-get-updated", renumber, priority=900)  # after everything is numbered
    app.connect("html-collect-pages", lost)
    app.connect("html-page-context", prepare, priority=900)
    app.connect("build-finished", write_map)
    app.connect("build-finished", drop_icon_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
