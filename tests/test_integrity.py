"""Whoever changes a verdict, takes evidence away or breaks a formula turns the suite red: each is done here, on a copy."""

import ast
import functools
import json
import re
from pathlib import Path

from test_claims import read_chapter

from attnbook.claims import claims

ROOT = Path(__file__).parent.parent
SETTLED = [row for row in claims().values() if row.verdict != "open"]


@functools.cache
def stored_html(chapter):
    """All HTML that a chapter's notebook shows."""
    notebook = json.loads((ROOT / "book" / f"{chapter}.ipynb").read_text(encoding="utf-8"))
    outputs = (output for cell in notebook["cells"] for output in cell.get("outputs", []))
    return "".join("".join(output.get("data", {}).get("text/html", "")) for output in outputs)


def stale(rows):
    """Claims whose chapter shows another card than theirs."""
    return [row.id for row in rows if row._repr_html_() not in stored_html(row.chapter)]


def unsupported(rows, read):
    """Claims whose chapter asserts nothing."""
    found = []
    for row in rows:
        code = "".join(re.findall(r"```\{code-cell\}.*?```", read(row.chapter) or "", re.DOTALL))
        if not re.search(r"^\s*assert ", code, re.MULTILINE):
            found.append(row.id)
    return found


def test_chapters_show_the_cards_of_the_ledger_and_assert_something():
    assert stale(SETTLED) == []
    assert unsupported(SETTLED, read_chapter) == []


def packages(path):
    """The packages that a file imports from."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (name.partition(".")[0] for name in [*names, getattr(node, "module", None) or ""])


def test_the_mathematics_knows_neither_the_book_nor_what_draws():
    for path in (ROOT / "src" / "attnopt").rglob("*.py"):
        assert not {*packages(path)} & {"attnbook", "matplotlib", "ipywidgets", "anywidget", "traitlets"}, path


def test_all_that_a_chapter_imports_is_on_the_api_page():
    page = (ROOT / "book" / "api.md").read_text(encoding="utf-8")
    whole = set(re.findall(r"automodule:: (\S+)\n   :members:\n", page))
    named = set(re.findall(r"\w+", " ".join(re.findall(r"^(?:\.\. auto\w+::|   :members:).*", page, re.M))))
    missing = set()
    for chapter in ROOT.glob("book/*/*.md"):
        text = chapter.read_text(encoding="utf-8")
        for module, names in re.findall(r"^from ((?:attnopt|attnbook)[\w.]*) import (\([^)]*\)|.*)", text, re.M):
            functions = (name for name in re.findall(r"\w+", names) if not name.isupper())  # constants have no entry
            missing |= {name for name in functions if module not in whole and name not in named}
    assert missing == set()
