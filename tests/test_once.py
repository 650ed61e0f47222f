"""What the build makes once: a sidebar for the pages of one folder that the table of contents does not name."""

from types import SimpleNamespace

import pybtex.plugin
import pytest
from sphinx.search.en import SearchEnglish

from bookkit import once


@pytest.fixture
def app(monkeypatch):
    monkeypatch.setattr(pybtex.plugin, "find_plugin", pybtex.plugin.find_plugin)
    monkeypatch.setattr(SearchEnglish, "stem", SearchEnglish.stem)
    app = SimpleNamespace(env=SimpleNamespace(found_docs={"part/chapter", "part/other"}), connect=lambda *_, **__: None)
    once.setup(app)
    return app


def sidebar(app, page, **options):
    """What a page shows, which says for which page it was made."""
    context = {"toctree": lambda **options: f"{page} {options}"}
    once.share_contents(app, page, "page.html", context, None)
    return context["toctree"](**options)


def test_pages_of_a_folder_share_the_contents_and_chapters_do_not(app):
    assert sidebar(app, "_modules/a", depth=1) == sidebar(app, "_modules/b", depth=1) == "_modules/a {'depth': 1}"
    assert sidebar(app, "_modules/b", depth=2) == "_modules/b {'depth': 2}"
    assert sidebar(app, "_modules/deeper/a", depth=1) == "_modules/deeper/a {'depth': 1}"
    assert sidebar(app, "part/lost") == "part/lost {}"
    for page in ("part/chapter", "part/other"):
        assert sidebar(app, page) == f"{page} {{}}"
    context = {}  # what Sphinx writes without a sidebar
    once.share_contents(app, "_modules/a", "page.html", context, None)
    assert context == {}


def test_stems_and_plugins_are_those_of_sphinx_and_pybtex(app):
    language = SearchEnglish({})
    for word in ("attention", "Gradients", "gradient", "gradients"):
        assert language.stem(word) == language.stemmer.stemWord(word.lower())
    assert pybtex.plugin.find_plugin("pybtex.backends", "plaintext").__name__ == "Backend"
