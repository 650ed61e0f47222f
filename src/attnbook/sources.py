"""The sources of the evidence as pages of the site, which needs no network: tests, experiments and stored results.

A Sphinx extension. Its pages are in the folder ``_evidence``, as Sphinx's own listings of the package in ``_modules``.
"""

import ast
import html
import shutil
from collections.abc import Iterator
from pathlib import Path

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from sphinx.application import Sphinx

from attnbook.claims import claims
from attnbook.folder import cited, find
from attnbook.ledger import EVIDENCE, source_page


def root() -> Path:
    """Of the checkout."""
    return find("book/claims.toml").parents[1]


def sources() -> list[str]:
    """The files to show, from the checkout's root: those with tests that are evidence, all experiments, all benchmarks."""
    tests = {test.partition("::")[0] for row in claims().values() for test in row.tests}
    scripts = {
        path.relative_to(root()).as_posix()
        for folder in ("experiments", "benchmarks")
        for path in (root() / folder).glob("*.py")
    }
    return sorted(tests | scripts)


def shown(path: str, text: str) -> str:
    """A source as HTML, with its functions and classes as anchors.

    Args:
        path: of the file, from the checkout's root.
        text: of it.
    """
    lines = highlight(text, PythonLexer(), HtmlFormatter(nowrap=True)).splitlines(keepends=True)
    found = {part.name: part for part in reversed(ast.parse(text).body) if hasattr(part, "decorator_list")}
    for name, part in found.items():
        number = min([part.lineno, *(decorator.lineno for decorator in part.decorator_list)]) - 1
        lines[number] = f'<span id="{name}">{lines[number].rstrip()}</span>\n'
    address = cited("repository-code").rstrip("/")
    link = f'<p><a href="{html.escape(address)}/blob/HEAD/{path}">In the repository</a></p>' if address else ""
    return (
        f"<h1><code>{html.escape(path)}</code></h1>{link}"
        '<div class="highlight-python notranslate"><div class="highlight">'
        f'<pre tabindex="0">{"".join(lines)}</pre></div></div>'
    )


def pages(app: Sphinx) -> Iterator[tuple[str, dict, str]]:
    """A page for each source."""
    for path in sources():
        text = (root() / path).read_text(encoding="utf-8")
        yield source_page(path).removesuffix(".html"), {"title": path, "body": shown(path, text)}, "page.html"


def copy_results(app: Sphinx, exception: Exception | None) -> None:
    """Put the stored results into the site."""
    if not exception and app.builder.format == "html":
        folder = Path(app.outdir, EVIDENCE, "results")
        folder.mkdir(parents=True, exist_ok=True)
        for path in (root() / "results").glob("*.json"):
            shutil.copyfile(path, folder / path.name)


def setup(app: Sphinx) -> dict:
    """Connect the above."""
    app.connect("html-collect-pages", pages)
    app.connect("build-finished", copy_results)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
