"""Comprehension questions: three statements per chapter, each true, false, or true under a condition.

``questions.toml`` holds each statement with its answer, the reason, and sometimes the claim of the ledger that settles it.
In JupyterLab, the answers unfold; on the page, ``book/_static/answers.js`` lets the reader choose first.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass

from attnbook.claims import prose
from attnbook.folder import table

ANSWERS = ("true", "false", "under a condition")
NUMBER = 3  # of questions per chapter
NEEDED = {"statement", "answer", "reason"}


@dataclass(frozen=True)
class Question:
    """A statement that a reader judges.

    Attributes:
        statement: the statement; mathematics between dollar signs.
        answer: one of `ANSWERS`.
        reason: the reason in one or two sentences, with the theorem's name.
        claim: the id of the ledger's claim that settles it; empty if there is none.
    """

    statement: str
    answer: str
    reason: str
    claim: str = ""

    def _repr_html_(self) -> str:
        link = f' <a href="../ledger.html#{self.claim}">In the ledger</a>' if self.claim else ""
        return (
            f'<div class="ao-question" data-answer="{self.answer}"><p>{prose(self.statement)}</p>'
            f"<details><summary>answer</summary><p><strong>{self.answer.capitalize()}.</strong> "
            f"{prose(self.reason)}{link}</p></details></div>"
        )


class Questions:
    """The questions of a chapter, shown one below the other in a notebook."""

    def __init__(self, chapter: str, questions: Iterable[Question]):
        self.chapter, self.questions = chapter, tuple(questions)

    def __repr__(self) -> str:
        return f"{len(self.questions)} questions on {self.chapter}"

    def _repr_html_(self) -> str:
        shown = "".join(question._repr_html_() for question in self.questions)
        return f'<div class="ao-questions">{shown}</div>'


def questions(chapter: str) -> Questions:
    """The questions of a chapter, to be shown in a cell of their own.

    Args:
        chapter: the chapter's name, as in ``"regression/softmax_and_lse"``.

    Raises:
        KeyError: if the chapter has no questions.
        ValueError: as for `parse`.
    """
    if chapter not in _all():
        raise KeyError(f"no questions on {chapter!r}; there are: {', '.join(_all())}")
    return _all()[chapter]


def before() -> Questions:
    """The questions on the book's prerequisites, to be shown in a cell of their own.

    Raises:
        ValueError: as for `checked`.
    """
    rows = enumerate(table("questions.toml")["before"], 1)
    return Questions("before", [checked(row, f"question {number} before", ()) for number, row in rows])


@functools.cache
def _all() -> dict[str, Questions]:
    """The questions of every chapter that has some."""
    rows = {chapter: asked for chapter, asked in table("questions.toml").items() if chapter != "before"}
    return parse(rows, table("claims.toml").keys() - {"papers", "sources", "statements"})


def parse(rows: dict[str, list[dict]], claims: Iterable[str]) -> dict[str, Questions]:
    """Questions, built from the table's rows, by chapter.

    Args:
        rows: the rows of ``questions.toml``, by chapter.
        claims: the ids of the ledger's claims.

    Raises:
        ValueError: if a chapter does not have three questions, or if a row lacks a field or has an unknown or invalid one;
            the message names the chapter.
    """
    found = {}
    for chapter, asked in rows.items():
        if not isinstance(asked, list) or len(asked) != NUMBER:
            raise ValueError(f'questions on {chapter} must be {NUMBER} tables [["{chapter}"]], got {len(asked)}')
        own = [checked(row, f"question {number} on {chapter}", claims) for number, row in enumerate(asked, 1)]
        found[chapter] = Questions(chapter, own)
    return found


def checked(row: dict, where: str, claims: Iterable[str]) -> Question:
    """The question built from one row.

    Args:
        row: the row's fields.
        where: the question's name in error messages.
        claims: the ids of the claims that it may name.

    Raises:
        ValueError: if the row lacks a field or has an unknown or invalid one.
    """
    if not NEEDED <= set(row) <= NEEDED | {"claim"}:
        raise ValueError(f"{where} must have the fields {sorted(NEEDED)}, perhaps claim, got {sorted(row)}")
    for field, value in row.items():
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{where}: {field} must be a text, got {value!r}")
        if value.count("$") % 2:
            raise ValueError(f"{where}: {field} must have its dollar signs in pairs, got {value!r}")
    if row["answer"] not in ANSWERS:
        raise ValueError(f"{where}: answer must be one of {list(ANSWERS)}, got {row['answer']!r}")
    if "claim" in row and row["claim"] not in claims:
        raise ValueError(f"{where}: claim must be one of the ledger's, got {row['claim']!r}")
    return Question(**row)
