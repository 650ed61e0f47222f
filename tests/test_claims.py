"""The ledger is complete, its evidence exists, and its rules notice when something is taken away."""

import ast
import csv
import dataclasses
import functools
import io
import json
import re
import tomllib
from pathlib import Path

import pytest
from conftest import unproven

from attnopt import claims as ledger
from attnopt.claims import VERDICTS, Ledger, claim, claims, counts, parse

ROOT = Path(__file__).parent.parent
PAPERS = tomllib.loads((ROOT / "tests" / "papers.toml").read_text(encoding="utf-8"))
TEXT = (ROOT / "src" / "attnopt" / "claims.toml").read_text(encoding="utf-8")


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
    """Settled claims whose chapter does not show their card; `read` gives a chapter's text, or None."""
    missing = []
    for row in rows:
        if row.verdict != "open":
            text = read(row.chapter)
            if text is None or not re.search(rf'^claim\("{re.escape(row.id)}"\)$', text, re.M):
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


NUMBER = r"(?:\d[\d,]*|one|two|three|four|five|six|seven|eight|nine|ten)"
OF_HOW_MANY = re.compile(
    rf"\d(?: %)? to \d"  # an interval
    rf"|\b{NUMBER} of (?:the |these )?{NUMBER}\b"
    rf"|\b{NUMBER} (?:successful |random )?(?:runs|models|seeds|pairs|images?|spikes)\b",
    re.IGNORECASE,
)


def bare(rows):
    """Experiments that are judged without an interval or a count of how many, and undecided claims without an interval."""
    return [
        row.id
        for row in rows
        if (row.kind == "experiment" and row.verdict != "open" and not OF_HOW_MANY.search(row.finding))
        or (row.verdict == "undecided" and not re.search(r"\d to \d", row.finding))
    ]


@functools.cache
def top_level(path):
    """Names of the functions that a file defines at its top level; none if it does not exist."""
    if not path.is_file():
        return set()
    return {node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}


def absent_tests(rows, root):
    """Named tests that no file defines at its top level."""
    named = [(row.id, test, *test.partition("::")[::2]) for row in rows for test in row.tests]
    return [(claim, test) for claim, test, path, name in named if name not in top_level(root / path)]


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


def test_no_experiment_is_judged_without_an_interval_or_a_count_of_how_many():
    assert bare(claims().values()) == []
    row = next(row for row in claims().values() if row.kind == "experiment")
    vague = {"finding": "Most of what is seen is as reported, by 0.3 and more."}
    assert bare([dataclasses.replace(row, **vague)]) == [row.id]
    assert bare([dataclasses.replace(row, **vague, verdict="open"), dataclasses.replace(row, **vague, kind="theorem")]) == []
    for said in ("a ratio of 0.7 (0.4 to 1.3)", "5 of the 53", "in all five runs", "100 pairs"):
        assert bare([dataclasses.replace(row, finding=said)]) == []
    assert bare([dataclasses.replace(row, finding="100 pairs", verdict="undecided")]) == [row.id]


def test_every_named_test_exists():
    assert absent_tests(claims().values(), ROOT) == []


def test_the_ledger_page_lists_every_claim():
    notebook = json.loads((ROOT / "book" / "ledger.ipynb").read_text(encoding="utf-8"))
    html = "".join(
        "".join(output.get("data", {}).get("text/html", ""))
        for cell in notebook["cells"]
        for output in cell.get("outputs", [])
    )
    assert unlisted(claims().values(), html) == [], "python3 run.py notebooks ledger"


def test_a_claim_without_its_row_its_card_or_its_test_is_noticed():
    rows = dict(claims())
    settled = next(row for row in rows.values() if row.verdict != "open" and row.covers)
    without = [row for row in rows.values() if row.id != settled.id]
    assert [item for _, item in uncovered(without, PAPERS)[0]] == sorted(settled.covers)
    assert settled.id in unshown([settled], lambda name: "no card here")
    assert settled.id in unshown([settled], lambda name: None)
    moved = parse(TEXT.replace(settled.tests[0], "tests/test_nowhere.py::test_it"))[settled.id]
    assert absent_tests([moved], ROOT) == [(settled.id, "tests/test_nowhere.py::test_it")]
    passed = {test + "[case]" for test in settled.tests}
    assert unproven([settled], passed) == []
    assert unproven([settled], set()) == [(settled.id, test) for test in settled.tests]
    reopened = parse(TEXT.replace(f'verdict = "{settled.verdict}"', 'verdict = "open"', 1))
    assert settled.id in inconsistent(reopened.values())


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
        parse(TEXT.replace(old, new, 1))


def test_counts_add_up():
    assert sum(number for row in counts().values() for number in row.values()) == len(claims())
    assert set(next(iter(counts().values()))) == set(VERDICTS)


def test_the_ledger_as_files_says_the_same():
    rows = json.loads(ledger.as_json())
    assert [ledger.Claim(**row | {"covers": tuple(row["covers"]), "tests": tuple(row["tests"])}) for row in rows] == list(
        claims().values()
    )
    table = list(csv.DictReader(io.StringIO(ledger.as_csv())))
    assert [row["id"] for row in table] == list(claims())
    assert [row["finding"] for row in table] == [row.finding for row in claims().values()]
    assert [tuple(filter(None, row["tests"].split("; "))) for row in table] == [row.tests for row in claims().values()]


def test_unknown_claim_is_named():
    with pytest.raises(KeyError, match="no claim 'actor-lemma-9'"):
        claim("actor-lemma-9")


def test_cards_and_rows_escape_their_text():
    row = claim("actor-lemma-1")
    hostile = ledger.Claim(**{**vars(row), "statement": "a <script>alert(1)</script> $x<y$ & b", "number": "<b>"})
    for html in (hostile._repr_html_(), Ledger([hostile])._repr_html_()):
        assert "<script>" not in html
        assert "&lt;script&gt;" in html
        assert r"\(x&lt;y\)" in html
        assert "&lt;b&gt;" in html
    assert repr(row) == "Lemma 1, Actor, Gruber, Cyr (2025): holds"
    assert repr(Ledger([row, row])) == "Ledger of 2 claims"
    assert 'href="regression/softmax_and_lse.html"' in Ledger([row])._repr_html_()
    assert f'href="../ledger.html#{row.id}"' in row._repr_html_()
