"""A Sphinx extension that puts the reading time and the symbols from the notation table at the head of each chapter."""

import re

from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx.application import Sphinx

from attnbook.chapter_map import parts
from attnbook.claims import prose
from attnbook.folder import find
from attnbook.folds import Fold

# Reading times in minutes: assumed, not measured, but the same for all chapters.
WORD, FORMULA, PICTURE, EXPLORER, LINE = 1 / 120, 1 / 2, 1, 4, 1 / 8
ROW = re.compile(r"^\| (?P<symbol>\$.*?) \| (?P<meaning>.*?) \|", re.M)


def notation(part: str) -> dict[str, str]:
    """The meanings of the symbols used in one part of the book, after those used in all parts.

    Args:
        part: the part's name on the notation page, as in ``"Part I"``.

    Returns:
        The meaning of each symbol, both with mathematics between dollar signs.

    Raises:
        ValueError: if the notation page has no such part.
    """
    sections = dict(
        re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", find("book/notation.md").read_text(encoding="utf-8"), re.M | re.S)
    )
    if part not in sections:
        raise ValueError(f"part must be one of {sorted(sections)}, got {part!r}")
    return {row["symbol"]: row["meaning"] for section in ("In all parts", part) for row in ROW.finditer(sections[section])}


def symbols(part: str, wanted: list[str]) -> dict[str, str]:
    """The rows of the notation table that a chapter selects by the beginnings of their symbols.

    Args:
        part: the part's name, as in `notation`.
        wanted: beginnings of the table's first column without the dollar sign, as in ``["Z", "N = "]``.

    Raises:
        ValueError: if one of them is the beginning of no row or of several.
    """
    rows, found = notation(part), {}
    for name in wanted:
        fitting = [symbol for symbol in rows if symbol.startswith(f"${name}")]
        exact = [symbol for symbol in fitting if re.match(r"\$" + re.escape(name) + r"(?![A-Za-z])", symbol)] or fitting
        if len(exact) != 1:
            raise ValueError(f"symbols: {name!r} must begin one row of the notation of {part}, begins {len(exact)}: {exact}")
        found[exact[0]] = rows[exact[0]]
    return found


def minutes(node: nodes.Element, proofs: bool) -> float:
    """The minutes that a page takes to read, without or with its proofs, which take twice as long; exercises do not count.

    Args:
        node: the page, in which proofs, solutions, and marked sections are collapsed, or a part of it.
        proofs: whether collapsed proofs and sections count; solutions never do.
    """
    if isinstance(node, (HideCodeCellNode, nodes.raw)) or (
        isinstance(node, Fold) and (node["kind"] == "solution" or not proofs)
    ):
        return 0
    if isinstance(node, nodes.section) and "exercises" in node["ids"]:
        return 0
    if isinstance(node, nodes.math_block):
        return FORMULA
    if isinstance(node, nodes.image):
        return PICTURE
    if isinstance(node, nodes.literal_block):
        return LINE * (node.astext().count("\n") + 1)
    if isinstance(node, nodes.math):
        return WORD
    if isinstance(node, nodes.Text):
        return WORD * len(node.astext().split())
    slower = 2 if isinstance(node, Fold) and node["kind"] == "proof" else 1
    own = EXPLORER if "attnopt-explorer" in node.get("classes", []) else 0
    return own + slower * sum(minutes(child, proofs) for child in node.children)


def said(story: float, proofs: float) -> str:
    """A sentence with both times, rounded to multiples of five minutes."""
    short, long = (max(5, 5 * round(time / 5)) for time in (story, proofs))
    return f"About {short} minutes to read" + (f", {long} with the details." if long > short else ".")


def add_head(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put the head below the title of a chapter's page.

    Raises:
        ValueError: as for `symbols`; the message names the chapter.
    """
    folder, _, name = docname.partition("/")
    for part in parts():
        for chapter in part["chapter"]:
            if (part["folder"], chapter["name"]) != (folder, name):
                continue
            title = next(doctree.findall(nodes.title))
            text = f'<div class="ao-head"><span>{said(minutes(doctree, False), minutes(doctree, True))}</span></div>'
            if "symbols" in chapter:
                try:
                    rows = symbols(f"Part {part['title'].partition(':')[0]}", chapter["symbols"])
                except ValueError as error:
                    raise ValueError(f"chapter {docname}: {error}") from error
                lines = "".join(
                    f"<tr><td>{prose(symbol)}</td><td>{prose(means)}</td></tr>" for symbol, means in rows.items()
                )
                text += (
                    '<details class="ao-fold ao-symbols"><summary>Symbols of this chapter</summary>'
                    f"<table><tbody>{lines}</tbody></table></details>"
                )
            title.parent.insert(title.parent.index(title) + 1, nodes.raw("", text, format="html"))


def setup(app: Sphinx) -> dict:
    """Register the functions above with Sphinx."""
    app.connect("doctree-resolved", add_head, priority=900)  # after everything is collapsed
    return {"parallel_read_safe": True, "parallel_write_safe": True}
