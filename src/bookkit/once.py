"""A Sphinx extension: what would be made anew for every page, and is the same, is made once.

The listings of code and of evidence, most of the site's pages, stand nowhere in the table of contents beside them, in which
then nothing is marked: it differs by its links alone, and these by the page's folder.
"""

import functools
from pathlib import PurePosixPath

import pybtex.plugin
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish


def share_contents(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: nodes.document | None) -> None:
    """Let pages of one folder that the table of contents does not name share it."""
    if pagename in app.env.found_docs or "toctree" not in context:
        return
    made, folder, resolve = app.attnopt_contents, PurePosixPath(pagename).parent, context["toctree"]

    def toctree(**options) -> str:
        key = folder, *sorted(options.items())
        if key not in made:
            made[key] = resolve(**options)
        return made[key]

    context["toctree"] = toctree


def setup(app: Sphinx) -> dict:
    """Connect the above; look up each plugin of the bibliography, and each word's stem for the search, once."""
    app.attnopt_contents = {}
    pybtex.plugin.find_plugin = functools.cache(pybtex.plugin.find_plugin)
    SearchEnglish.stem = functools.cache(SearchEnglish.stem)
    app.connect("html-page-context", share_contents, priority=400)  # before the theme asks for it
    return {"parallel_read_safe": True, "parallel_write_safe": True}
