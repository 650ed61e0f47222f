"""Pages do not wait for scripts, and load none for a search that they do not offer."""

from types import SimpleNamespace

from attnbook.lighter import lighter, rewrite

HEAD = """<head>
    <script src="_static/documentation_options.js?v=1"></script>
    <script src="_static/doctools.js?v=1"></script>
    <script defer="defer" src="_static/host.js"></script>
    <script>DOCUMENTATION_OPTIONS.pagename = 'index';</script>
    <script src="_static/searchtools.js"></script>
    <script src="_static/language_data.js"></script>
    <script src="searchindex.js"></script>
</head><body></body>"""


def test_scripts_wait_except_the_one_that_the_page_talks_to():
    page = lighter(HEAD)
    assert '<script src="_static/documentation_options.js?v=1"></script>' in page
    assert page.count('<script defer="defer" src=') == 2
    assert "search" not in page
    assert "DOCUMENTATION_OPTIONS.pagename" in page
    assert lighter(page) == page


def test_built_pages_are_rewritten_except_the_search(tmp_path):
    for name in ("index.html", "search.html"):
        (tmp_path / name).write_text(HEAD, encoding="utf-8")
    for builder, fault in (("latex", None), ("html", RuntimeError())):
        rewrite(SimpleNamespace(builder=SimpleNamespace(format=builder), outdir=tmp_path), fault)
        assert (tmp_path / "index.html").read_text(encoding="utf-8") == HEAD
    rewrite(SimpleNamespace(builder=SimpleNamespace(format="html"), outdir=tmp_path), None)
    assert (tmp_path / "index.html").read_text(encoding="utf-8") == lighter(HEAD)
    assert (tmp_path / "search.html").read_text(encoding="utf-8") == HEAD
