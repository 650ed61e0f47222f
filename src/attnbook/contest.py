"""A Sphinx extension that adds links for contesting a verdict or a proof when it writes a page.

The notebooks do not depend on the repository's address, so none is executed again when the repository gets one.
"""

import html
import re

from sphinx.application import Sphinx

from attnbook.ledger import HOW, contested

PLACE = re.compile(r'<a href="[\w./]*#contest" data-contest="([\w-]+)">([^<]*)</a>')
CARD = re.compile(r'<a href="([\w./]*ledger\.html)#([\w-]+)">In the ledger</a>')


def offer(body: str) -> str:
    """A page's body with a link next to each card and each erratum: to the form, or to instructions if there is none.

    Args:
        body: the body's HTML.
    """
    body = CARD.sub(lambda card: f'{card[0]} · <a href="{card[1]}#contest" data-contest="{card[2]}">{HOW}</a>', body)

    def filled(place: re.Match) -> str:
        address = contested(place[1])
        words = place[2].replace("How to contest", "Contest").replace("how to contest", "contest")
        return f'<a href="{html.escape(address)}">{words}</a>' if address else place[0]

    return PLACE.sub(filled, body)


def write(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object) -> None:
    """Add the links to every page that is made from a source file."""
    if doctree is not None:
        context["body"] = offer(context["body"])


def setup(app: Sphinx) -> dict:
    """Register the functions above with Sphinx."""
    app.connect("html-page-context", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
