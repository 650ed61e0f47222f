"""The graph of what depends on what: complete, without circles, and nothing proved depends on what is only measured."""

import dataclasses
import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from notebooks import colab_cell

from attnbook.chapter_map import chapters
from attnbook.claims import FIELDS, claims
from attnbook.folder import cited
from attnbook.graph import Graph, Table, carried, cycle, joined, nodes, overstated, read, statements
from attnbook.joined import graph_json
from attnbook.ledger import Ledger, as_csv, bibtex, downstream, made, source_page
from attnbook.sources import root, shown, sources

BOOK = Path(__file__).parent.parent / "book"
TABLE = tomllib.loads((BOOK / "claims.toml").read_text(encoding="utf-8"))
ROWS = {name: {key: row[key] for key in row.keys() & FIELDS} for name, row in TABLE.items() if name in claims()}
ROWS |= TABLE["statements"]
TEXT = """
:::{prf:theorem} First
:label: thm-first

Something holds, as in {prf:ref}`thm-other`.

$$
x = y
$$ (eq-first)

:::

:::{prf:proof}

By {prf:ref}`lem-last <thm-not>` and {prf:ref}`words <lem-words>`, {eq}`eq-first`.

:::

::::{prf:lemma} Last
:label: lem-last

:::{note}
No reference here.
:::

::::

Some words, and {prf:ref}`thm-first` outside.

:::{prf:proof}

{prf:ref}`thm-far`

:::
"""


def labels(text):
    """The anchors that a chapter's text sets."""
    return {
        *re.findall(r"^:label: (\S+)", text, re.M),
        *re.findall(r"^\(([\w-]+)\)=$", text, re.M),
        *re.findall(r"^\s+name: ([\w-]+)$", text, re.M),
        *re.findall(r"\$\$ \(([\w-]+)\)", text),
    }


def test_every_claim_and_every_statement_of_the_chapters_is_in_the_graph():
    texts = {chapter: (BOOK / f"{chapter}.md").read_text(encoding="utf-8") for chapter in chapters()}
    named = [
        name
        for text in texts.values()
        for name in re.findall(r"\{prf:(?:theorem|lemma|prop\w+|cor\w+)\}.*\n:label: (\S+)", text)
    ]
    count = sum(len(re.findall(r"\{prf:(?:theorem|lemma|prop\w+|cor\w+)\}", text)) for text in texts.values())
    assert len(named) == count > 100
    assert sorted(named) == sorted(statements())
    assert nodes().keys() == claims().keys() | set(named)
    assert {path.relative_to(BOOK).with_suffix("").as_posix() for path in BOOK.glob("*/*.md")} == set(chapters())


def test_nothing_stands_on_itself_and_nothing_proved_on_what_is_measured():
    assert cycle(nodes()) == ()
    assert overstated(nodes()) == []


def test_what_the_chapters_name_is_in_the_graph():
    edges = {(node.id, used) for node in nodes().values() for used in (*node.uses, *node.proof_uses)}
    apart = {(name, other) for name, row in ROWS.items() for other in row.get("apart", ())}
    named = {(one.id, other) for one in statements().values() for other in (*one.named, *one.proof_named)}
    assert len(named) > 30
    assert named - apart <= edges
    assert not apart & edges
    for node in nodes().values():
        assert not set(node.uses) & set(node.proof_uses), node.id
    own = nodes()["thm-gdpp-gradient"]
    assert own.proof_uses or own.uses


def test_slogans_are_sentences_in_plain_words():
    slogans = [node.slogan for node in nodes().values()]
    assert len(set(slogans)) == len(slogans)
    for slogan in slogans:
        assert len(slogan) <= 225, slogan
        assert re.fullmatch(r"[A-Z√][^$\\|]*[^.]\.", slogan), slogan


def test_a_claim_is_shown_at_an_anchor_of_its_chapter_and_its_numbers_are_stored():
    for node in nodes().values():
        assert node.shown in labels((BOOK / f"{node.chapter}.md").read_text(encoding="utf-8")), node.id
        for name in node.results:
            assert (root() / "results" / f"{name}.json").is_file()
            assert made(name), name


def test_statements_and_what_they_name_are_read_from_the_text():
    found, equations = read("part/chapter", TEXT)
    assert list(found) == ["thm-first", "lem-last"]
    assert found["thm-first"].named == ("thm-other",)
    assert found["thm-first"].proof_named == ("thm-not", "lem-words", "eq-first")
    assert (found["lem-last"].kind, found["lem-last"].title) == ("lemma", "Last")
    assert (found["lem-last"].named, found["lem-last"].proof_named) == ((), ("thm-far",))
    assert equations == {"eq-first": "thm-first"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda rows: rows.pop("thm-ray"), r"lacks \['thm-ray'\]"),
        (lambda rows: rows.update({"thm-nowhere": rows["thm-ray"]}), r"\['thm-nowhere'\] too many"),
        (lambda rows: rows["thm-ray"].pop("slogan"), "thm-ray must have slogan and evidence"),
        (lambda rows: rows["thm-ray"].update(colour="red"), "thm-ray must have .* got .*colour"),
        (lambda rows: rows["thm-ray"].update(evidence="believed"), "thm-ray: evidence must be one of .* got 'believed'"),
        (lambda rows: rows["thm-ray"].update(evidence="measured"), "thm-ray: evidence must be one of .*with over"),
        (lambda rows: rows["thm-ray"].update(uses=["thm-nowhere"]), r"thm-ray depends on \['thm-nowhere'\]"),
    ],
)
def test_a_faulty_row_is_named(change, says):
    rows = {name: dict(row) for name, row in ROWS.items()}
    change(rows)
    with pytest.raises(ValueError, match=says):
        joined(rows)


@given(st.integers(2, 8), st.data())
def test_circles_are_found_exactly_where_there_is_one(size, data):
    some = dict(list(nodes().items())[:size])
    names = list(some)
    pairs = data.draw(st.sets(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), max_size=10))
    graph = {
        name: dataclasses.replace(node, uses=tuple(names[j] for i, j in pairs if i == place), proof_uses=())
        for place, (name, node) in enumerate(some.items())
    }
    reach = {(i, j) for i, j in pairs}
    for k in range(size):
        reach |= {(i, j) for i in range(size) for j in range(size) if (i, k) in reach and (k, j) in reach}
    found = cycle(graph)
    assert bool(found) == any((i, i) in reach for i in range(size))
    assert all(other in graph[one].uses for one, other in pairwise(found))
    assert not found or found[0] == found[-1]
    above = carried(graph)
    for i in range(size):
        assert downstream(names[i], above) == {names[j] for j, k in reach if k == i}


def test_what_rests_on_a_measurement_may_not_call_itself_proved():
    some = dict(list(nodes().items())[:2])
    one, other = some.values()
    for kind, expected in (("proved", [(one.id, other.id)]), ("cases", [(one.id, other.id)]), ("measured", [])):
        graph = {
            one.id: dataclasses.replace(one, evidence=kind, uses=(), proof_uses=(other.id,)),
            other.id: dataclasses.replace(other, evidence="measured", uses=(), proof_uses=()),
        }
        assert overstated(graph) == expected


def test_the_picture_has_a_node_and_the_table_a_row_for_each():
    drawn, listed = Graph(nodes())._repr_html_(), Table(nodes())._repr_markdown_()
    assert (
        set(re.findall(r' id="([\w-]+)" class="ao-node"', drawn))
        == set(re.findall(r'data-row="([\w-]+)"', listed))
        == set(nodes())
    )
    edges = sum(len(node.uses) + len(node.proof_uses) for node in nodes().values())
    assert drawn.count("data-from=") == edges
    assert drawn.count('class="ao-proof"') == sum(len(node.proof_uses) for node in nodes().values())
    assert len(set(Graph(nodes()).places.values())) == len(nodes())
    for node in nodes().values():
        assert f"{node.slogan} ({node.known})" in listed


def test_a_card_leads_to_everything_behind_it():
    page = Ledger(nodes())._repr_html_()
    node = nodes()["odonnat-gradient-bound"]
    card = re.search(rf'<details class="ao-claim" id="{node.id}".*?<pre>.*?</details></details>', page, re.S)[0]
    for test in claims()[node.id].tests:
        path, _, name = test.partition("::")
        assert f'href="{source_page(path)}#{name}"' in card
    assert f'href="{node.place}"' in card
    assert f'href="graph.html#{node.id}"' in card
    assert all(f'href="#{used}"' in card for used in node.uses)
    assert bibtex(node).startswith(f"@misc{{attention-as-optimization-{node.id},")
    assert "Version 1.0.0" in card
    measured = nodes()["odonnat-spikes-mlp"]
    assert 'href="_evidence/results/loss_spikes.json" download' in page
    assert 'href="_evidence/experiments/loss_spikes.html"' in page
    assert measured.results
    assert as_csv().count("\n") > len(claims())
    assert f'"id": "{node.id}"' in graph_json()


def test_sources_hold_every_test_that_is_evidence_as_an_anchor():
    pages = {path: shown(path, (root() / path).read_text(encoding="utf-8")) for path in sources()}
    for row in claims().values():
        for test in row.tests:
            path, _, name = test.partition("::")
            assert f'<span id="{name}">' in pages[path]
    assert shown("a.py", "def f():\n    return '<b>'\n").count("&lt;b&gt;") == 1


def test_the_repositorys_address_has_one_place(monkeypatch, tmp_path):
    (tmp_path / "CITATION.cff").write_text("version: 8\n", encoding="utf-8")
    with monkeypatch.context() as there:
        there.chdir(tmp_path)
        assert cited("repository-code") == ""
        assert "In the repository" not in shown("a.py", "")
        assert "input(" in colab_cell(root() / "book" / "index.md").source
    (tmp_path / "CITATION.cff").write_text("version: 9\nrepository-code: 'https://example.org/book'\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert cited("version") == "9"
    assert '<a href="https://example.org/book/blob/HEAD/tests/a.py">' in shown("tests/a.py", "")
    cell = colab_cell(root() / "book" / "index.md").source
    assert "address = 'https://example.org/book'" in cell
    assert "input(" not in cell


def test_names_of_claims_and_theorems_are_permanent():
    listed = Path(__file__).with_name("names.txt").read_text(encoding="utf-8").splitlines()
    there = claims().keys() | statements().keys()
    assert sorted(there - set(listed)) == [], "new names go to tests/names.txt"
    assert sorted(set(listed) - there) == [], "others link to these names: they stay"
