"""Build the book's pages with Sphinx alone, without Jupyter Book, and compare them with those that Jupyter Book built.

    python tools/newest.py OUTPUT USUAL

OUTPUT is the folder for the new pages, USUAL the folder with Jupyter Book's. `_config.yml` and `_toc.yml` stay the source.
"""

import re
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "book"
# What Jupyter Book sets, whatever `_config.yml` says, and what this book's pages depend on.
ALWAYS = {
    "html_sourcelink_suffix": "",
    "html_static_path": ["_static"],
    "html_theme": "sphinx_book_theme",
    "myst_url_schemes": ["mailto", "http", "https"],
    "numfig": True,
    "pygments_style": "sphinx",
}
NAMES = {  # of Jupyter Book's keys in Sphinx; `None`: of no effect on this book
    "title": "html_title",
    "author": "author",
    "copyright": "copyright",
    "logo": None,
    "only_build_toc_files": "external_toc_exclude_missing",
    "exclude_patterns": "exclude_patterns",
    "bibtex_bibfiles": "bibtex_bibfiles",
    "execute_notebooks": "nb_execution_mode",
    "myst_enable_extensions": "myst_enable_extensions",
    "myst_linkify_fuzzy_links": None,  # Jupyter Book passes it on to nobody
    "use_multitoc_numbering": None,  # for tables of contents that number chapters
}
# Elements of a page's article, by a class that names their kind, or by their tag.
COUNTED = {
    "ao-answer",
    "ao-claim",
    "ao-claims",
    "ao-fold",
    "attnopt-explorer",
    "cell",
    "eqno",
    "exercise",
    "highlight",
    "math",
}
COUNTED |= {"proof", "sig"}
TAGS = {"figure", "img", "table", "li", "p", "details"}


def settings(config: dict) -> dict:
    """Sphinx's settings as Jupyter Book derives them from its configuration.

    Args:
        config: what `_config.yml` holds.

    Raises:
        ValueError: for a key that this translation does not know.
    """
    keys = {key: value for key, value in config.items() if key not in ("execute", "parse", "html", "sphinx")}
    for section in ("execute", "parse", "html"):
        keys |= config.get(section, {})
    if unknown := sorted(keys.keys() - NAMES.keys()):
        raise ValueError(f"_config.yml: tools/newest.py cannot translate {', '.join(unknown)}")
    found = ALWAYS | {NAMES[key]: value for key, value in keys.items() if NAMES[key]} | config["sphinx"]["config"]
    static = BOOK / "_static"
    for kind in ("css", "js"):
        found[f"html_{kind}_files"] = sorted(path.relative_to(static).as_posix() for path in static.rglob(f"*.{kind}"))
    return found | {"extensions": [name for name in found["extensions"] if name != "jupyter_book"]}


def build(output: Path) -> bool:
    """Build the pages from nothing, warnings as errors; whether there were none."""
    config = settings(yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8")))
    config |= {"external_toc_path": str(ROOT / "_toc.yml"), "nitpicky": True}
    with patch_docutils(), docutils_namespace():
        app = Sphinx(
            BOOK, None, output, output.parent / "doctrees", "html",
            confoverrides=config, status=None, freshenv=True, warningiserror=True,
        )  # fmt: skip
        app.build(force_all=True)
    return not app.statuscode


class Page(HTMLParser):
    """What a page consists of: headings and counts of its article, anchors and links of the whole page."""

    def __init__(self, path: Path):
        super().__init__()
        self.path = path.resolve()
        self.headings, self.counts, self.anchors, self.links = [], Counter(), set(), []
        self.inside = self.heading = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list) -> None:
        """Note an element."""
        has = dict(attributes)
        self.anchors |= {has.get("id")}
        self.links += [has[name] for name in ("href", "src") if has.get(name)]
        self.inside |= tag == "article"
        if self.inside:
            self.counts.update(COUNTED & set((has.get("class") or "").split()) | TAGS & {tag})
            if re.fullmatch("h[1-6]", tag):
                self.heading = True
                self.headings.append(f"{tag} ")

    def handle_endtag(self, tag: str) -> None:
        """Leave a heading, or the article."""
        self.heading &= not re.fullmatch("h[1-6]", tag)
        self.inside &= tag != "article"

    def handle_data(self, data: str) -> None:
        """Collect a heading's words, without the signs with which themes mark its anchor."""
        if self.heading:
            self.headings[-1] += data.strip("#¶")


def pages(folder: Path) -> dict[str, Page]:
    """All pages of a built book by their names."""
    paths = sorted(path for path in folder.rglob("*.html") if "_static" not in path.parts)
    return {path.relative_to(folder).as_posix(): Page(path) for path in paths}


def broken(found: dict[str, Page]) -> set[str]:
    """Links between a built book's pages that lead nowhere."""
    lines, places = set(), {page.path: page for page in found.values()}
    for name, page in found.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or name == "404.html":  # whose links start at the site's root
                continue
            path = page.path.parent / unquote(parts.path) if parts.path else page.path
            target = places.get(path.resolve())
            anchor = unquote(parts.fragment)  # with "=" it is an explorer's state
            if not path.is_file() or (target and anchor and "=" not in anchor and anchor not in target.anchors):
                lines.add(f"{name}: {link} leads nowhere")
    return lines


def differences(old: dict[str, Page], new: dict[str, Page]) -> list[str]:
    """In what two builds of the book differ, a line each."""
    lines = [f"{name}: only in one of the two builds" for name in sorted(old.keys() ^ new.keys())]
    for name in sorted(old.keys() & new.keys()):
        if old[name].headings != new[name].headings:
            changed = sorted(set(old[name].headings) ^ set(new[name].headings))
            lines.append(f"{name}: other headings, among them {changed[:4]}")
        for kind in sorted(COUNTED | TAGS):
            was, now = (page[name].counts[kind] for page in (old, new))
            if was != now:
                lines.append(f"{name}: {was} {kind} became {now}")
    return lines


def main(output: str, usual: str) -> None:
    """Build, compare, and say what differs; warnings or differences end in an exit code."""
    folder = Path(output)
    good = build(folder)
    old, new = pages(Path(usual)), pages(folder)
    found = differences(old, new) + sorted(broken(new) - broken(old))
    print("\n".join(found) or f"{len(new)} pages, the same as Jupyter Book's")
    sys.exit(bool(found or not good))


if __name__ == "__main__":
    main(*sys.argv[1:])
