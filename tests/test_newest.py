"""The book without Jupyter Book: the same settings, and a comparison of pages that can see a difference."""

import newest
import pytest
import yaml
from jupyter_book.config import get_final_config

CONFIG = newest.ROOT / "_config.yml"
# What Jupyter Book sets for cells that are executed, for LaTeX, for a logo, and for comments, none of which this book has.
LEFT_OUT = {
    "comments_config", "html_baseurl", "html_logo", "latex_engine", "nb_execution_allow_errors", "nb_execution_cache_path",
    "nb_execution_excludepatterns", "nb_execution_in_temp", "nb_execution_timeout", "nb_output_stderr",
    "use_jupyterbook_latex", "use_multitoc_numbering",
}  # fmt: skip
ONLY_THERE = {"jupyter_book", "sphinx_jupyterbook_latex", "sphinx_multitoc_numbering"}
PAGE = """<article><h1 id="top">A page<a href="#top">#</a></h1><div class="math notranslate">x</div>
<div class="proof"></div><a href="b.html#there">b</a></article><div class="math"></div>"""


def test_the_settings_are_those_of_jupyter_book():
    theirs, _ = get_final_config(
        user_yaml=CONFIG, cli_config={"latex_individualpages": False}, sourcedir=newest.BOOK, validate=False
    )
    ours = newest.settings(yaml.safe_load(CONFIG.read_text(encoding="utf-8")))
    theirs["extensions"] = [name for name in theirs["extensions"] if name not in ONLY_THERE]
    for either in (theirs, ours):  # Jupyter Book lists files in the order of the disk, and its own exclusions besides
        either["html_css_files"].sort()
        either["html_js_files"].sort()
        either["exclude_patterns"] = set(either["exclude_patterns"]) - {".DS_Store", "Thumbs.db", "_build"}
    assert {name: value for name, value in theirs.items() if name not in LEFT_OUT} == ours


def test_a_key_that_would_be_lost_is_named():
    config = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    with pytest.raises(ValueError, match=r"tools/newest\.py cannot translate announcement"):
        newest.settings(config | {"html": {"announcement": "x"}})


@pytest.fixture
def site(tmp_path):
    """Write a folder of pages and read them."""

    def site(name, **pages):
        folder = tmp_path / name
        folder.mkdir()
        for page, text in pages.items():
            (folder / f"{page}.html").write_text(text, encoding="utf-8")
        return newest.pages(folder)

    return site


def test_pages_that_differ_are_named(site):
    other = '<article><h1 id="there">B</h1></article>'
    usual = site("usual", a=PAGE, b=other)
    assert newest.differences(usual, usual) == []
    assert newest.broken(usual) == set()
    fewer = PAGE.replace('<div class="proof">', '<div class="theorem">').replace("A page", "Page")
    assert newest.differences(usual, site("fewer", a=fewer, c="")) == [
        "b.html: only in one of the two builds",
        "c.html: only in one of the two builds",
        "a.html: other headings, among them ['h1 A page', 'h1 Page']",
        "a.html: 1 proof became 0",
    ]


def test_links_that_lead_nowhere_are_named(site):
    assert newest.broken(site("one", a=PAGE)) == {"a.html: b.html#there leads nowhere"}
    assert newest.broken(site("two", a=PAGE, b="")) == {"a.html: b.html#there leads nowhere"}
    assert newest.broken(site("three", a=PAGE.replace("b.html#there", "a.html#top"))) == set()
