"""A Sphinx extension that adds, below each entry of the errata, a collapsed section with its script and the output."""

import contextlib
import io
import re
import runpy
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import download_reference
from sphinx.application import Sphinx

from attnbook.folder import find
from attnbook.folds import Fold, Summary
from attnbook.ledger import HOW

SCRIPT = re.compile(r"errata/([\w-]+)\.py")
NUMBER = re.compile(r"[-+]?\d+\.?\d*(?:e[-+]?\d+)?")


def printed(path: Path) -> str:
    """The output of a script, which is run in this process.

    Args:
        path: the script's path.
    """
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        runpy.run_path(str(path))
    return text.getvalue()


def same(one: str, other: str) -> bool:
    """Whether two outputs agree in words and whole numbers, and in other numbers up to one unit of the last digit.

    Args:
        one: the first output.
        other: the second output.
    """
    words = [["".join(part.split()) for part in NUMBER.split(text)] for text in (one, other)]
    if words[0] != words[1]:
        return False
    for pair in zip(NUMBER.findall(one), NUMBER.findall(other), strict=True):
        whole = all(re.fullmatch(r"[-+]?\d+", text) for text in pair)
        if abs(float(pair[0]) - float(pair[1])) > (0 if whole else 1.01 * max(map(last_digit, pair))):
            return False
    return True


def last_digit(number: str) -> float:
    """The value of one unit in the last digit of a written number.

    Args:
        number: the number as text, as in ``"-3.2e-05"``.
    """
    mantissa, _, power = number.partition("e")
    return 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))


def show(app: Sphinx, doctree: nodes.document) -> None:
    """Add each script and its output in a collapsed section below the paragraph that offers the script for download."""
    if app.env.docname != "errata":
        return
    for link in list(doctree.findall(download_reference)):
        if not (name := SCRIPT.fullmatch(link["reftarget"])):
            continue
        paragraph = link.parent
        while not isinstance(paragraph, nodes.paragraph):
            paragraph = paragraph.parent
        folder = find("book/errata.md").with_name("errata")
        source, output = ((folder / f"{name[1]}.{kind}").read_text(encoding="utf-8") for kind in ("py", "txt"))
        fold = Fold(
            "",
            Summary("", "The script, and what it prints"),
            nodes.literal_block(output, output, language="text", classes=["ao-printed"]),
            nodes.literal_block(source, source, language="python"),
            kind="script",
        )
        paragraph.parent.insert(paragraph.parent.index(paragraph) + 1, fold)
        how = f'<a href="ledger.html#contest" data-contest="{name[1]}">{HOW.lower()}</a>'
        paragraph += [nodes.Text(" · "), nodes.raw("", how, format="html")]


def setup(app: Sphinx) -> dict:
    """Register the functions above with Sphinx."""
    app.connect("doctree-read", show)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
