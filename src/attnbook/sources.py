"""A Sphinx extension that puts the sources of the evidence into the site: tests, experiments, and stored results.

They can be read without a network. The folder is ``_evidence``, just as ``_modules`` has Sphinx's listings of the package.
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
    """The checkout's root folder."""
    return find("book/claims.toml").parents[1]


def sources() -> list[str]:
    """The files to show, relative to the checkout's root: tests that are evidence, experiments, and benchmarks."""
    tests = {test.partition("::")[0] for row in claims().values() for test in row.tests}
    scripts = {
        path.relative_to(root()).as_posix()
        for folder in ("experiments", "benchmarks")
        for path in (root() / folder).glob("*.py")
    }
    return sorted(tests | scripts)


def shown(path: str, text: str) -> str:
    """A source file as HTML, with an anchor for each function and class.

    Args:
        path: the file's path, relative to the checkout's root.
        text: the file's text.
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
    """A page for each source file."""
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
    """Register the functions above with Sphinx."""
    app.connect("html-collect-pages", pages)
    app.connect("build-finished", copy_results)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
