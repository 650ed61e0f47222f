"""Questions of understanding: complete, well formed, and shown so that they can be read anywhere."""

import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

from attnbook.claims import claims
from attnbook.questions import ANSWERS, NUMBER, before, parse, questions

BOOK = Path(__file__).parent.parent / "book"
TABLE = tomllib.loads((BOOK / "questions.toml").read_text(encoding="utf-8"))
TABLE.pop("before")  # of no chapter
ROW = {"statement": "Is $x < y$ so?", "answer": "false", "reason": "No & no."}


def spoiled(**changes):
    """A table whose second question is changed; what is None is left out."""
    row = {name: value for name, value in (ROW | changes).items() if value is not None}
    return {"part/chapter": [ROW, row, ROW]}


@pytest.mark.parametrize("chapter", TABLE)
def test_every_chapter_named_exists_and_has_three_questions_on_its_own_claims(chapter):
    assert (BOOK / f"{chapter}.md").is_file()
    asked = questions(chapter).questions
    assert len(asked) == NUMBER == 3
    assert {question.answer for question in asked} <= set(ANSWERS)
    assert len({question.answer for question in asked}) > 1  # nobody can guess them all alike
    for question in asked:
        assert not question.claim or claims()[question.claim].chapter == chapter
        assert "printed" not in question.statement + question.reason


def test_what_to_know_before_is_asked_with_every_answer_and_of_no_chapter():
    asked = before().questions
    assert len(asked) >= 8
    assert {question.answer for question in asked} == set(ANSWERS)
    assert not any(question.claim for question in asked)


@pytest.mark.parametrize("chapter", TABLE)
def test_theorems_that_a_reason_names_are_in_its_chapter(chapter):
    text = (BOOK / f"{chapter}.md").read_text(encoding="utf-8")
    named = [name for q in questions(chapter).questions for name in re.findall("the theorem “(.+?)”(?! of)", q.reason)]
    assert named or ":::{prf:theorem}" not in text
    assert all(f":::{{prf:theorem}} {name}\n" in text for name in named)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ({"part/chapter": [ROW, ROW]}, r"questions on part/chapter must be 3 tables \[\[\"part/chapter\"\]\], got 2"),
        ({"part/chapter": [ROW] * 4}, r"questions on part/chapter must be 3 tables .* got 4"),
        ({"part/chapter": ROW}, "questions on part/chapter must be 3 tables"),
        (spoiled(reason=None), r"question 2 on part/chapter must have the fields .* got \['answer', 'statement'\]"),
        (spoiled(hint="x"), "question 2 on part/chapter must have the fields"),
        (spoiled(statement=""), "question 2 on part/chapter: statement must be a text, got ''"),
        (spoiled(reason=3), "question 2 on part/chapter: reason must be a text, got 3"),
        (spoiled(answer=True), "question 2 on part/chapter: answer must be a text, got True"),
        (spoiled(reason="An open $x"), "question 2 on part/chapter: reason must have its dollar signs in pairs"),
        (spoiled(answer="maybe"), "question 2 on part/chapter: answer must be one of .*under a condition.*, got 'maybe'"),
        (spoiled(claim="none"), "question 2 on part/chapter: claim must be one of the ledger's, got 'none'"),
    ],
)
def test_malformed_rows_are_named(rows, says):
    assert parse(spoiled(claim="known"), {"known"})
    with pytest.raises(ValueError, match=says):
        parse(rows, {"known"})


def test_a_chapter_without_questions_is_told():
    with pytest.raises(KeyError, match=f"no questions on 'part/none'; there are: {next(iter(TABLE))}"):
        questions("part/none")


def test_questions_show_themselves_alive_without_scripts():
    shown = parse(spoiled(claim="known", answer="under a condition"), {"known"})["part/chapter"]
    assert repr(shown) == "3 questions on part/chapter"
    page = ElementTree.fromstring(shown._repr_html_())
    assert len(page.findall("./div[@class='ao-question']/details/summary")) == 3
    first, second, third = page.findall("./div[@class='ao-question']")
    text = lambda node: "".join(node.itertext())  # noqa: E731
    assert text(first.find("p")) == text(third.find("p")) == r"Is \(x < y\) so?"
    assert text(first.find("details/p")) == "False. No & no."
    assert first.get("data-answer") == "false"
    assert first.find(".//a") is None
    assert text(second.find("details/p")) == "Under a condition. No & no. In the ledger"
    assert second.find(".//a").get("href") == "../ledger.html#known"
    assert {name for node in page.iter() for name in node.attrib} == {"class", "data-answer", "href"}
