"""What the built pages owe to their readers elsewhere."""

import struct
from types import SimpleNamespace
from xml.etree import ElementTree

import nbformat
import pytest
from docutils.core import publish_doctree
from sphinx.application import Sphinx

from attnbook import pages, previews


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "source.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 640, 480))
    return path


def app(folder, address="", **builder):
    config = SimpleNamespace(html_baseurl=address, html_title="A book")
    known = {"images": {}, "get_target_uri": "{}.html".format, "format": "html"} | builder
    environment = SimpleNamespace(found_docs={"index", "part/chapter"})
    return SimpleNamespace(config=config, builder=SimpleNamespace(**known), srcdir=folder, outdir=folder, env=environment)


def test_images_get_their_size_and_load_late(picture):
    body = '<p><img alt="x" src="../_images/a.png" /><img src="elsewhere.png"/><img width="3" src="_images/a.png"/></p>'
    assert pages.sized(body, {"a.png": picture}) == body.replace(
        '<img alt="x"', '<img loading="lazy" decoding="async" width="640" height="480" alt="x"', 1
    )


def test_a_figure_stands_in_a_container_that_scrolls():
    body = '<figure class="a">\n<img alt="x" src="b.png" />\n<figcaption>c</figcaption></figure><p><img src="d.png"/></p>'
    assert pages.sized(body, {}) == body.replace(
        '<img alt="x" src="b.png" />', '<div class="pst-scrollable-table-container"><img alt="x" src="b.png" /></div>'
    )


def test_a_formula_keeps_the_comma_and_the_bracket_that_touch_it():
    formula = '<span class="math notranslate nohighlight">\\(a, b)\\)</span>'
    assert pages.joined(f"<p>with ({formula}), or {formula} so</p>") == (
        f'<p>with <span class="ao-joined">({formula}),</span> or <span class="ao-joined">{formula}</span> so</p>'
    )


def test_anchors_that_extensions_repeat_are_dropped(tmp_path):
    body = '<div class="proof" id="proof"><section id="proof-content"></section></div><section id="proofs"></section>'
    context = {"body": body, "pathto": lambda name, _: name}
    pages.prepare(app(tmp_path), "x", "page.html", context, None)
    assert context["body"] == '<div class="proof"><section></section></div><section id="proofs"></section>'


@pytest.mark.parametrize(
    ("address", "image", "url"),
    [
        ("", "../_static/preview.png", None),
        (
            "https://example.org/book/",
            "https://example.org/book/_static/preview.png",
            "https://example.org/book/part/x.html",
        ),
    ],
)
def test_previews_name_an_address_only_where_it_is_known(tmp_path, address, image, url):
    context = {"title": "A &amp; <em>B</em>", "body": "", "pathto": lambda name, _: f"../{name}"}
    pages.prepare(app(tmp_path, address), "part/x", "page.html", context, publish_doctree('Say "so".'))
    assert '<meta property="og:title" content="A &amp; B"/>' in context["metatags"]
    assert 'content="Say &quot;so&quot;."' in context["metatags"]
    assert f'<meta property="og:image" content="{image}"/>' in context["metatags"]
    assert ("og:url" in context["metatags"]) == bool(url)
    assert url is None or url in context["metatags"]


def test_the_map_lists_every_page_of_a_known_address(tmp_path):
    pages.write_map(app(tmp_path), None)
    assert not list(tmp_path.iterdir())
    pages.write_map(app(tmp_path, "https://example.org/book/"), None)
    places = [node.text for node in ElementTree.parse(tmp_path / "sitemap.xml").iter() if node.tag.endswith("loc")]
    assert places == ["https://example.org/book/index.html", "https://example.org/book/part/chapter.html"]


@pytest.mark.parametrize(
    ("told", "address"),
    [("", ""), ("https://example.org/b", "https://example.org/b/"), ("https://e.org/", "https://e.org/")],
)
def test_the_address_comes_from_the_environment(monkeypatch, told, address):
    monkeypatch.setenv("BOOK_URL", told)
    config = SimpleNamespace(html_baseurl=None, html_theme_options={})
    pages.locate(None, config)
    assert config.html_baseurl == address


def test_all_numbers_but_those_of_figures_start_anew_on_each_page():
    one = {"thm": {"b": (1,), "a": (2,)}, "eq": {"c": (1,)}, "figure": {"f": (1,)}}
    two = {"thm": {"e": (10,), "d": (9,)}, "figure": {"g": (2,)}}
    pages.renumber(None, SimpleNamespace(toc_fignumbers={"one": one, "two": two}))
    assert one == {"thm": {"b": (1,), "a": (2,)}, "eq": {"c": (1,)}, "figure": {"f": (1,)}}
    assert two == {"thm": {"d": (1,), "e": (2,)}, "figure": {"g": (2,)}}


@pytest.mark.parametrize("address", ["", "https://github.com/someone/book"])
def test_a_notebook_starts_on_binder_and_colab_once_the_repository_has_an_address(address, tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "cited", {"repository-code": address}.get)
    cell = nbformat.v4.new_markdown_cell("# A chapter")
    about = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=[cell], metadata=about), tmp_path / "index.ipynb")
    how = {"extensions": ["myst_nb", "attnbook.pages"], "html_theme": "sphinx_book_theme", "nb_execution_mode": "off"}
    sphinx = Sphinx(tmp_path, None, tmp_path / "out", tmp_path / "trees", "html", how, status=None, warning=None)
    sphinx.build()
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    for place in (
        "https://mybinder.org/v2/gh/someone/book/main?urlpath=lab/tree/book/index.ipynb",
        "https://colab.research.google.com/github/someone/book/blob/main/book/index.ipynb",
    ):
        assert (place in page) == bool(address)


def test_an_element_is_taken_only_if_it_is_of_a_kind_that_is_shown():
    text = (
        '<dl><dt id="term-a">a</dt><dt id="term-b">b</dt><dd>Both</dd></dl><section id="part"><p>A part</p></section>'
        '<div class="proof theorem" id="thm-a">A<div>B</div></div><div class="math" id="equation-a">E</div>'
    )
    for name, inside in (("term-a", "Both"), ("thm-a", "AB"), ("equation-a", "E")):
        assert previews.element(text, name).get_text() == inside
    for name in ("part", "elsewhere", "term-elsewhere", "equation-elsewhere"):
        assert previews.element(text, name) is None
