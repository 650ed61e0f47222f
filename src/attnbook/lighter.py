"""A Sphinx extension: scripts wait for the text, and none is loaded for a search that no page offers.

Without it, the first paint takes half as long again, because Sphinx loads its scripts in the head of each page and waits.
"""

import re
from pathlib import Path

from sphinx.application import Sphinx

# What the theme loads on every page for a search field that asks for it as one types, which the book's does not.
SEARCH = re.compile(r'\s*<script src="[^"]*(?:searchtools|language_data|searchindex)\.js[^"]*"></script>')
BLOCKING = re.compile(r'<script src="(?![^"]*documentation_options\.js)')  # on that one scripts in the page build


def lighter(page: str) -> str:
    """A page whose scripts are loaded in parallel with its text, without those of the search.

    Args:
        page: its HTML.
    """
    return BLOCKING.sub('<script defer="defer" src="', SEARCH.sub("", page))


def rewrite(app: Sphinx, exception: Exception | None) -> None:
    """Rewrite the built pages, except the one that searches."""
    if exception or app.builder.format != "html":
        return
    for path in Path(app.outdir).rglob("*.html"):
        if path.name != "search.html":
            path.write_text(lighter(path.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")


def setup(app: Sphinx) -> dict:
    """Connect the above."""
    app.connect("build-finished", rewrite, priority=900)  # when all pages are written
    return {"parallel_read_safe": True, "parallel_write_safe": True}
