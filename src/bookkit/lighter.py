"""A Sphinx extension: less to load before a page shows.

No search index where nothing searches, scripts that wait for the text, and no icons but those that are used. And one
measurement of the theme, which it repeats after each change of a page, without what made it long.
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
SIGN = re.compile(r"\\([ef][0-9a-f]{3})\b|([\ue000-\uf8ff])")  # an icon in a style sheet, as its number or as itself
# The theme makes what scrolls reachable by keyboard: it measures and marks one element after the other, also in closed
# folds, and the page is laid out anew for each of them.
MARKING = re.compile(
    r"(?P<all>document\.querySelectorAll\(\[[^\]]*\]\.join\([^)]*\)\))\.forEach\(e=>\{e\.tabIndex=(?P<index>[^}]*)\}\)"
    r'(?P<later>\},t=_\(e,300\);)(?P<resized>window\.addEventListener\("resize",t\))'
)
MARKED = (
    r"[...\g<all>].filter(e=>e.checkVisibility()).map(e=>[e,\g<index>]).forEach(([e,i])=>{e.tabIndex=i})"
    r'\g<later>document.addEventListener("toggle",t,!0),\g<resized>'
)


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


def measured_first(script: str) -> str:
    """The theme's script, which measures all that may scroll and is seen, then marks it, and again when a fold is opened.

    Args:
        script: its text.

    Raises:
        ValueError: if that is not found there.
    """
    script, found = MARKING.subn(MARKED, script)
    if found != 1:
        raise ValueError(
            f"the theme's script must mark once what scrolls, found {found} times: look at bookkit.lighter.MARKING"
        )
    return script


def slim(app: Sphinx, exception: Exception | None) -> None:
    """Rewrite the built pages and the theme's style sheet, font and script."""
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
    script = static / "scripts/pydata-sphinx-theme.js"
    script.write_text(measured_first(script.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
    styles = used_icons(theme.read_text(encoding="utf-8"), names)
    theme.write_text(FONT.sub("", styles), encoding="utf-8", newline="\n")
    found = [pair for path in static.rglob("*.css") for pair in SIGN.findall(path.read_text(encoding="utf-8"))]
    signs = {int(number, 16) if number else ord(sign) for number, sign in found}
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
