"""The head of a chapter: symbols that the notation table has, times that grow with what there is to read."""

import pytest
from docutils import nodes

from attnbook import heads
from attnbook.chapter_map import parts
from attnbook.folds import Fold, Summary
from attnbook.heads import minutes, notation, said, symbols

LISTED = [
    (f"Part {part['title'].partition(':')[0]}", chapter)
    for part in parts()
    for chapter in part["chapter"]
    if "symbols" in chapter
]


@pytest.mark.parametrize(("part", "chapter"), LISTED, ids=lambda value: value["name"] if isinstance(value, dict) else value)
def test_the_symbols_of_a_chapter_are_rows_of_the_notation(part, chapter):
    found = symbols(part, chapter["symbols"])
    assert len(found) == len(chapter["symbols"])
    assert found.items() <= notation(part).items()


def test_a_symbol_begins_one_row():
    [(symbol, meaning)] = symbols("Part I", ["S"]).items()
    assert (symbol, meaning) == ("$S$", "number of tokens")
    assert list(symbols("Part I", [r"\theta \in \mathbb{R}^{F"])) == [r"$\theta \in \mathbb{R}^{F \times F}$"]
    with pytest.raises(ValueError, match=r"'XYZ' must begin one row of the notation of Part I, begins 0: \[\]"):
        symbols("Part I", ["XYZ"])
    with pytest.raises(ValueError, match="must begin one row of the notation of Part I, begins 2"):
        symbols("Part I", [r"\theta \in"])
    with pytest.raises(ValueError, match="part must be one of .*'Part III'.*, got 'Part X'"):
        notation("Part X")


def page(*content):
    return nodes.section("", nodes.title("", "Title"), *content)


def test_a_page_takes_longer_with_every_kind_of_thing_on_it():
    plain = minutes(page(), proofs=False)
    words = nodes.paragraph("", "", nodes.Text("one two three "), nodes.math("", "x"))
    for content in (
        words,
        nodes.math_block("", "x = y"),
        nodes.image(),
        nodes.literal_block("", "x = 1\ny = 2"),
        nodes.container(classes=["attnopt-explorer"]),
    ):
        assert minutes(page(content), proofs=False) > plain
    assert minutes(page(words), proofs=False) - plain == pytest.approx(4 * heads.WORD)
    assert minutes(page(nodes.literal_block("", "a\nb")), proofs=False) - plain == pytest.approx(2 * heads.LINE)


def test_what_is_folded_counts_with_the_proofs_only_and_exercises_never():
    text = nodes.paragraph("", "", nodes.Text("word " * 120))
    proof = page(Fold("", Summary("", "Proof"), text.deepcopy(), kind="proof"))
    solution = page(Fold("", Summary("", "Solution"), text.deepcopy(), kind="solution"))
    exercises = page(nodes.section("", text.deepcopy(), ids=["exercises"]))
    plain = minutes(page(), proofs=True)
    assert minutes(proof, proofs=False) == plain
    assert minutes(proof, proofs=True) == pytest.approx(plain + 2, abs=4 * heads.WORD)
    assert minutes(solution, proofs=True) == plain
    assert minutes(exercises, proofs=True) == plain


def test_times_are_said_in_fives():
    assert said(2, 2) == "About 5 minutes to read."
    assert said(23, 38) == "About 25 minutes to read, 40 with the details."
    assert said(24, 26) == "About 25 minutes to read."
