"""The ledger is complete, its evidence exists, and its rules notice when something is taken away."""

import csv
import io
import json
import re
import tomllib
from pathlib import Path
from textwrap import dedent

import pytest

from attnbook import folder
from attnbook.claims import Claim, claim, claims, claims_of_chapter, evidence, parse
from attnbook.graph import nodes
from attnbook.joined import ledger_json
from attnbook.ledger import Ledger, as_csv

ROOT = Path(__file__).parent.parent
PAPERS = tomllib.loads((ROOT / "tests" / "papers.toml").read_text(encoding="utf-8"))
TEXT = (ROOT / "book" / "claims.toml").read_text(encoding="utf-8")


def uncovered(rows, papers):
    """Numbered items of the papers that no row answers for, and items that rows name but no paper has."""
    covered = {(row.paper, item) for row in rows for item in row.covers}
    known, wanted = set(), set()
    for paper, inventory in papers.items():
        items = [item for kind in ("statements", "figures", "tables", "equations") for item in inventory[kind]]
        known |= {(paper, item) for item in items}
        wanted |= {(paper, item) for item in items if item not in inventory["setup"]}
    return sorted(wanted - covered), sorted(covered - known)


def unshown(rows, read):
    """Settled claims whose chapter does not show their card at its end, and where it speaks of them if the book disagrees.

    `read` gives a chapter's text, or None.
    """
    missing = []
    for row in rows:
        if row.verdict != "open":
            cards = [f'claims_of_chapter("{row.chapter}")']
            if row.verdict not in ("holds", "reproduced", "answered"):
                cards.append(f'claim("{row.id}")')
            if not {*cards} <= {*(read(row.chapter) or "").splitlines()}:
                missing.append(row.id)
    return missing


def inconsistent(rows):
    """Open claims that name evidence, and settled ones that lack some."""
    return [
        row.id
        for row in rows
        if (row.verdict == "open" and (row.finding or row.chapter or row.tests))
        or (row.verdict != "open" and not (row.finding and row.chapter and row.tests))
    ]


def unlisted(rows, html):
    """Claims that the ledger page does not list with their verdict."""
    return [row.id for row in rows if f'id="{row.id}" data-paper="{row.paper}" data-verdict="{row.verdict}"' not in html]


def read_chapter(name):
    path = ROOT / "book" / f"{name}.md"
    return path.read_text(encoding="utf-8") if path.is_file() else None


def test_every_numbered_item_of_the_papers_has_a_claim():
    assert uncovered(claims().values(), PAPERS) == ([], [])


def test_every_settled_claim_shows_its_card_beside_its_evidence():
    assert unshown(claims().values(), read_chapter) == []


def test_open_claims_name_no_evidence_and_settled_ones_all_of_it():
    assert inconsistent(claims().values()) == []


def test_the_ledger_page_lists_every_claim():
    notebook = json.loads((ROOT / "book" / "ledger.ipynb").read_text(encoding="utf-8"))
    html = "".join(
        "".join(output.get("data", {}).get("text/html", ""))
        for cell in notebook["cells"]
        for output in cell.get("outputs", [])
    )
    assert unlisted(claims().values(), html) == [], "python3 run.py notebooks ledger"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('paper = "actor"', 'paper = "nobody"', "paper must be one of"),
        ('verdict = "holds"', 'verdict = "maybe"', "verdict must be one of"),
        ('kind = "theorem"', 'kind = "hunch"', "kind must be one of"),
        ('chapter = "', 'chapitre = "', "must have the fields"),
    ],
)
def test_a_malformed_row_is_named(old, new, message):
    with pytest.raises(ValueError, match=rf"claim \S+.*{message}"):
        parse(tomllib.loads(TEXT.replace(old, new, 1)), {})


def test_evidence_is_read_from_marks_and_an_unknown_claim_is_named(tmp_path):
    (tmp_path / "tests" / "part").mkdir(parents=True)
    text = dedent("""
    import nothing_of_that_name
    @pytest.mark.parametrize("x", [1])
    @pytest.mark.evidence("one", "two")
    def test_a(x): ...
    @other.mark.evidence("three")
    def test_b(): ...
    @pytest.mark.evidence("two")
    def test_c(): ...
    """)
    (tmp_path / "tests" / "part" / "test_it.py").write_text(text, encoding="utf-8")
    found = evidence(tmp_path)
    assert found == {
        "one": ("tests/part/test_it.py::test_a",),
        "two": ("tests/part/test_it.py::test_a", "tests/part/test_it.py::test_c"),
    }
    with pytest.raises(ValueError, match="test_it.py::test_a is marked as evidence for 'one', which is not a claim of"):
        parse({"papers": {}}, {"one": found["one"]})


def test_the_ledger_as_files_says_the_same():
    rows = json.loads(ledger_json())["claims"]
    assert [Claim(**row | {"covers": tuple(row["covers"]), "tests": tuple(row["tests"])}) for row in rows] == list(
        claims().values()
    )
    table = list(csv.DictReader(io.StringIO(as_csv())))
    assert [row["id"] for row in table] == list(claims())
    assert [row["finding"] for row in table] == [row.finding for row in claims().values()]
    assert [tuple(filter(None, row["tests"].split("; "))) for row in table] == [row.tests for row in claims().values()]


def test_the_book_is_found_around_the_working_folder_or_beside_the_package(tmp_path, monkeypatch):
    other = tmp_path / "book"
    (other / "part").mkdir(parents=True)
    (other / "claims.toml").write_text("[papers]", encoding="utf-8")
    monkeypatch.chdir(other / "part")
    assert folder.table("claims.toml") == {"papers": {}}
    assert folder.find("book/answers.toml") == ROOT / "book" / "answers.toml"
    monkeypatch.setattr(folder, "__file__", str(tmp_path / "site-packages" / "attnbook" / "folder.py"))
    with pytest.raises(FileNotFoundError, match=r"no book/answers.toml in .*part or a folder around it: start from"):
        folder.table("answers.toml")


def test_a_chapters_claims_stand_together():
    rows = claims_of_chapter("regression/softmax_and_lse")
    expected = [row for row in claims().values() if row.chapter == "regression/softmax_and_lse"]
    assert list(rows.claims) == expected != []
    html = rows._repr_html_()
    assert html.count("<details") == len(expected)
    assert all(f"ledger.html#{row.id}" in html for row in expected)
    assert repr(rows) == "\n".join(map(repr, expected))
    assert "No statement of the papers" in repr(claims_of_chapter("part/none"))
    assert "No statement of the papers" in claims_of_chapter("part/none")._repr_html_()


def test_a_chapter_shows_its_own_claims_and_questions():
    shown = 0
    for path in sorted((ROOT / "book").glob("*/*.md")):
        name = path.relative_to(ROOT / "book").with_suffix("").as_posix()
        named = re.findall(r'^(?:claims_of_chapter|questions)\("([^"]*)"\)$', path.read_text(encoding="utf-8"), re.M)
        assert named in ([], [name, name]), path
        shown += bool(named)
    assert shown >= 2


def test_unknown_claim_is_named():
    with pytest.raises(KeyError, match="no claim 'actor-lemma-9'"):
        claim("actor-lemma-9")


def test_cards_and_rows_escape_their_text(monkeypatch):
    row, known = claim("actor-lemma-1"), nodes()  # made before the hostile row is there, for they are kept
    hostile = Claim(**{**vars(row), "statement": "a <script>alert(1)</script> $x<y$ & b", "number": "<b>"})
    monkeypatch.setitem(claims(), row.id, hostile)
    for html in (hostile._repr_html_(), Ledger(known)._repr_html_()):
        assert "<script>" not in html
        assert "&lt;script&gt;" in html
        assert r"\(x&lt;y\)" in html
        assert "&lt;b&gt;" in html
    assert repr(row) == "Lemma 1, Actor, Gruber, Cyr (2025): holds"
    assert f'href="../ledger.html#{row.id}"' in row._repr_html_()
