"""A Sphinx extension: less to load before a page shows.

No search index where nothing searches, scripts that wait for the text, and no icons but those that are used.
"""

import re
from pathlib import Path

from fontTools import subset
from sphinx.application import Sphinx

# What the theme loads on every page for a search field that asks for it as one types, which the book's does not.
SEARCH = re.compile(r'\s*<script src="[^"]*(?:searchtools|language_data|searchindex)\.js[^"]*"></script>')
BLOCKING = re.compile(r'<script src="(?![^"]*documentation_options\.js)')  # on that one scripts in the page build
ICONS = re.compile(r'(?P<names>(?:,?\.fa-[\w-]+:{1,2}before)+)\{content:"(?P<sign>[^"]*)"\}')
FONT = re.compile(r'url\([^)]*fa-solid-900\.woff2\) format\("woff2"\),')
SIGN = re.compile(r"\\([ef][0-9a-f]{3})\b")  # how style sheets write an icon


def lighter(page: str) -> str:
    """A page whose scripts are loaded beside its text, without those of the search.

    Args:
        page: its HTML.
    """
    return BLOCKING.sub('<script defer="defer" src="', SEARCH.sub("", page))


def used_icons(styles: str, names: set[str]) -> str:
    """A style sheet without the icons that no page names.

    Args:
        styles: its text.
        names: of the icons that are used, without ``fa-``.
    """

    def kept(found: re.Match) -> str:
        return found[0] if names & set(re.findall(r"\.fa-([\w-]+):", found["names"])) else ""

    return ICONS.sub(kept, styles)


def slim(app: Sphinx, exception: Exception | None) -> None:
    """Rewrite the built pages and the theme's style sheet and font."""
    if exception or app.builder.format != "html":
        return
    static, names = Path(app.outdir, "_static"), set()
    for path in Path(app.outdir).rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        names |= set(re.findall(r"\bfa-([\w-]+)", text))
        if path.name != "search.html":
            path.write_text(lighter(text), encoding="utf-8", newline="\n")
    scripts = (path for path in static.rglob("*.js") if path.name != "fontawesome.js" and "mathjax" not in path.parts)
    for script in scripts:
        names |= set(re.findall(r"\bfa-([\w-]+)", script.read_text(encoding="utf-8")))
    theme, font = static / "styles/pydata-sphinx-theme.css", static / "vendor/fontawesome/webfonts/fa-solid-900.ttf"
    styles = used_icons(theme.read_text(encoding="utf-8"), names)
    theme.write_text(FONT.sub("", styles), encoding="utf-8", newline="\n")
    signs = {int(sign, 16) for path in static.rglob("*.css") for sign in SIGN.findall(path.read_text(encoding="utf-8"))}
    options = subset.Options(hinting=False, layout_features=[], name_IDs=[1, 2, 13, 14], notdef_outline=True)
    whole = subset.load_font(font, options, lazy=False)
    part = subset.Subsetter(options)
    part.populate(unicodes=signs)
    part.subset(whole)
    whole.save(font)
    whole.close()


def setup(app: Sphinx) -> dict:
    """Connect the above."""
    app.connect("build-finished", slim, priority=900)  # when all pages are written
    return {"parallel_read_safe": True, "parallel_write_safe": True}
