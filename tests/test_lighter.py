"""Pages load what they use."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pydata_sphinx_theme
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from fontTools.ttLib import TTFont

from bookkit.lighter import lighter, measured_first, slim, used_icons

THEME = Path(pydata_sphinx_theme.__file__).parent / "theme/pydata_sphinx_theme/static/scripts/pydata-sphinx-theme.js"
HEAD = """<head>
    <script src="_static/documentation_options.js?v=1"></script>
    <script src="_static/doctools.js?v=1"></script>
    <script defer="defer" src="_static/host.js"></script>
    <script>DOCUMENTATION_OPTIONS.pagename = 'index';</script>
    <script src="_static/searchtools.js"></script>
    <script src="_static/language_data.js"></script>
    <script src="searchindex.js"></script>
</head><body><i class="fa-solid fa-bars"></i></body>"""
STYLES = (
    '@font-face{src:url(../w/fa-solid-900.woff2) format("woff2"),url(../w/fa-solid-900.ttf) format("truetype")}'
    '.fa-bars:before,.fa-navicon:before{content:"\\f0c9"}.fa-cat:before{content:"\\f6be"}.fa-sun:before{content:"\\f185"}'
    '.other:before{content:"\\f107"}.raw:after{content:"\uf0f3"}'
)


@pytest.fixture
def site(tmp_path):
    (tmp_path / "index.html").write_text(HEAD, encoding="utf-8")
    (tmp_path / "search.html").write_text(HEAD, encoding="utf-8")
    static = tmp_path / "_static"
    for folder in ("styles", "scripts", "vendor/fontawesome/webfonts"):
        (static / folder).mkdir(parents=True)
    (static / "styles" / "pydata-sphinx-theme.css").write_text(STYLES, encoding="utf-8")
    (static / "scripts" / "own.js").write_text('icon.className = "fa-sun"', encoding="utf-8")
    shutil.copy(THEME, static / "scripts")
    (static / "scripts" / "fontawesome.js").write_text('"fa-cat"', encoding="utf-8")
    names = {0xF0C9: "bars", 0xF6BE: "cat", 0xF185: "sun", 0xF107: "angle", 0xF0F3: "bell"}
    glyphs = [".notdef", *names.values()]
    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    pen.lineTo((0, 500))
    pen.lineTo((500, 0))
    pen.closePath()
    drawn = pen.glyph()
    builder = FontBuilder(1000)
    builder.setupGlyphOrder(glyphs)
    builder.setupCharacterMap(names)
    builder.setupGlyf(dict.fromkeys(glyphs, drawn))
    builder.setupHorizontalMetrics(dict.fromkeys(glyphs, (600, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Signs", "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(static / "vendor/fontawesome/webfonts/fa-solid-900.ttf")
    return tmp_path


def test_scripts_wait_but_for_the_one_that_the_page_talks_to():
    page = lighter(HEAD)
    assert '<script src="_static/documentation_options.js?v=1"></script>' in page
    assert page.count('<script defer="defer" src=') == 2
    assert "search" not in page
    assert "DOCUMENTATION_OPTIONS.pagename" in page
    assert lighter(page) == page


def test_icons_that_no_page_names_are_left_out():
    assert used_icons(STYLES, {"navicon"}).count("content") == 3  # it and what is no icon
    assert used_icons(STYLES, {"bars", "cat", "sun"}) == STYLES


def test_the_site_keeps_the_signs_that_pages_scripts_and_styles_use(site):
    app = SimpleNamespace(builder=SimpleNamespace(format="html"), outdir=site)
    slim(app, None)
    assert "searchindex" not in (site / "index.html").read_text(encoding="utf-8")
    assert (site / "search.html").read_text(encoding="utf-8") == HEAD
    styles = (site / "_static/styles/pydata-sphinx-theme.css").read_text(encoding="utf-8")
    assert "fa-cat" not in styles
    assert "woff2" not in styles
    assert "fa-solid-900.ttf" in styles
    with TTFont(site / "_static/vendor/fontawesome/webfonts/fa-solid-900.ttf") as font:
        assert set(font.getBestCmap()) == {0xF0C9, 0xF185, 0xF107, 0xF0F3}


def test_the_themes_script_measures_before_it_marks(site):
    script = THEME.read_text(encoding="utf-8")
    found = measured_first(script)
    assert found.count(".filter(e=>e.checkVisibility()).map(e=>[e,e.scrollWidth>") == 1
    assert found.count('addEventListener("toggle",t,!0)') == 1
    slim(SimpleNamespace(builder=SimpleNamespace(format="html"), outdir=site), None)
    assert (site / "_static/scripts/pydata-sphinx-theme.js").read_text(encoding="utf-8") == found
    for other in (found, ""):
        with pytest.raises(ValueError, match="must mark once what scrolls, found 0 times"):
            measured_first(other)


def test_a_build_that_failed_or_is_no_site_is_left_alone(site):
    for app, fault in (
        (SimpleNamespace(builder=SimpleNamespace(format="latex"), outdir=site), None),
        (SimpleNamespace(builder=SimpleNamespace(format="html"), outdir=site), RuntimeError()),
    ):
        slim(app, fault)
        assert (site / "index.html").read_text(encoding="utf-8") == HEAD
