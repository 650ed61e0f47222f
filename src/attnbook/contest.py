"""Links by which a reader contests a verdict or a proof, put in when a page is written; a Sphinx extension.

Notebooks contain the same text whether or not the repository has an address, so none is executed again when it gets one.
"""

import html
import re

from sphinx.application import Sphinx

from attnbook.ledger import HOW, contested

PLACE = re.compile(r'<a href="[\w./]*#contest" data-contest="([\w-]+)">([^<]*)</a>')
CARD = re.compile(r'<a href="([\w./]*ledger\.html)#([\w-]+)">In the ledger</a>')


def offer(body: str) -> str:
    """A page's body with a link next to each card and each erratum: to the form, or to what to do without one.

    Args:
        body: HTML.
    """
    body = CARD.sub(lambda card: f'{card[0]} · <a href="{card[1]}#contest" data-contest="{card[2]}">{HOW}</a>', body)

    def filled(place: re.Match) -> str:
        address = contested(place[1])
        words = place[2].replace("How to contest", "Contest").replace("how to contest", "contest")
        return f'<a href="{html.escape(address)}">{words}</a>' if address else place[0]

    return PLACE.sub(filled, body)


def write(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object) -> None:
    """Do so in every page that is made from a text."""
    if doctree is not None:
        context["body"] = offer(context["body"])


def setup(app: Sphinx) -> dict:
    """Connect the above."""
    app.connect("html-page-context", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
