"""The claims ledger: every numbered statement, figure, and table of the papers, with its verdict and evidence."""

import ast
import functools
import html
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from attnbook.folder import find, table

VERDICTS = {
    "holds": "true as printed, proved and tested",
    "holds with a caveat": "true, with a condition or qualification that the finding states",
    "corrected": "false as printed, or evidently misprinted",
    "reproduced": "our runs give what the paper reports",
    "reproduced in part": "our runs give only part of what the paper reports",
    "undecided": "too few runs to decide: the confidence interval is compatible with both answers",
    "not reproduced": "our runs do not give what the paper reports",
    "answered": "left open by the paper, or proposed but not tried; decided here",
    "open": "not yet judged",
}
FIELDS = {"slogan", "evidence", "over", "uses", "apart", "shown", "results"}  # fields of a row that `attnbook.graph` reads
KINDS = ("theorem", "equation", "experiment", "statement", "definition")
MARKED = re.compile(r"^@pytest\.mark\.evidence\(.*?^def \w+", re.M | re.S)  # from this mark to the test's name


@dataclass(frozen=True)
class Claim:
    """One row of the ledger, shown in a notebook as a line that expands into a card.

    Attributes:
        id: the row's name, which is also its anchor on the ledger page.
        paper: the paper's key in `papers`.
        number: the claim's number or place in the paper.
        kind: one of `KINDS`.
        covers: the paper's numbered items that the row covers.
        statement: what the paper claims, in the book's words; mathematics between dollar signs.
        verdict: the verdict, a key of `VERDICTS`.
        finding: what the book found; empty while the verdict is open.
        chapter: the chapter with the evidence, as in ``regression/softmax_and_lse``; empty while open.
        tests: the tests that would fail if the finding were wrong, as pytest node ids; they are marked with the id.
    """

    id: str
    paper: str
    number: str
    kind: str
    covers: tuple[str, ...]
    statement: str
    verdict: str
    finding: str
    chapter: str
    tests: tuple[str, ...]

    def __repr__(self) -> str:
        return f"{self.number}, {papers()[self.paper]}: {self.verdict}"

    def says(self) -> str:
        """The statement and, if there is one, the finding, as HTML."""
        finding = f"<p><em>We find:</em> {prose(self.finding)}</p>" if self.finding else ""
        stated = "We state" if self.paper == "book" else "The paper says"
        return f"<p><em>{stated}:</em> {prose(self.statement)}</p>{finding}"

    def _repr_html_(self) -> str:
        source = "(this book)" if self.paper == "book" else f"of {short(papers()[self.paper])}"
        return (
            f'<details class="ao-claim" data-verdict="{self.verdict}">'
            f'<summary class="ao-claim-head"><span class="ao-verdict">{self.verdict}</span> '
            f"<strong>{html.escape(self.number)}</strong> {source}</summary>"
            f"{self.says()}"
            f'<p><a href="../ledger.html#{self.id}">In the ledger</a></p></details>'
        )


NONE = "No statement of the papers is judged in this chapter."


class Claims:
    """Several claims, one below the other, each shown as a line that expands into a card."""

    def __init__(self, claims: Iterable[Claim]):
        self.claims = tuple(claims)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.claims)) or NONE

    def _repr_html_(self) -> str:
        return f'<div class="ao-claims">{"".join(row._repr_html_() for row in self.claims) or NONE}</div>'


@functools.cache
def claims() -> dict[str, Claim]:
    """Every claim by its id, in the ledger's order.

    Raises:
        ValueError: if a row of ``claims.toml`` lacks a field or has an unknown field, paper, kind, or verdict, or if a
            test is marked with a claim that has no row.
    """
    return parse(table("claims.toml"), evidence(find("book/claims.toml").parents[1]))


def evidence(root: Path) -> dict[str, tuple[str, ...]]:
    """The pytest node ids of the tests that are marked ``@pytest.mark.evidence("claim", …)``, by claim.

    The test files are parsed, not imported.

    Args:
        root: the checkout's root folder.
    """
    found: dict[str, tuple[str, ...]] = {}
    for path in sorted(root.glob("tests/**/test_*.py")):
        for head in MARKED.findall(path.read_text(encoding="utf-8")):  # parsing all the text would take half a second
            test = ast.parse(f"{head}(): ...").body[0]
            marks = [mark for mark in test.decorator_list if isinstance(mark, ast.Call)]
            for mark in (mark for mark in marks if ast.unparse(mark.func) == "pytest.mark.evidence"):
                for claim in map(ast.literal_eval, mark.args):
                    found[claim] = (*found.get(claim, ()), f"{path.relative_to(root).as_posix()}::{test.name}")
    return found


@functools.cache
def papers() -> dict[str, str]:
    """Authors and year of every paper by its key, in the ledger's order."""
    return table("claims.toml")["papers"]


def parse(rows: dict[str, dict], tests: dict[str, tuple[str, ...]]) -> dict[str, Claim]:
    """Claims, built from the ledger's rows and the tests for each claim.

    Raises:
        ValueError: as for `claims`; the message names the row.
    """
    expected = {field.name for field in fields(Claim)} - {"id", "tests"}
    found = {}
    for name, row in rows.items():
        if name in ("papers", "sources", "statements"):
            continue
        if not expected <= row.keys() <= expected | FIELDS:
            raise ValueError(f"claim {name} must have the fields {sorted(expected)}, got {sorted(row.keys() - FIELDS)}")
        row = {field: row[field] for field in expected}
        for field, known in (("paper", rows["papers"]), ("kind", KINDS), ("verdict", VERDICTS)):
            if row[field] not in known:
                raise ValueError(f"claim {name}: {field} must be one of {sorted(known)}, got {row[field]!r}")
        found[name] = Claim(name, **row | {"covers": tuple(row["covers"]), "tests": tests.get(name, ())})
    for claim in tests.keys() - found.keys():
        raise ValueError(f"{tests[claim][0]} is marked as evidence for {claim!r}, which is not a claim of the ledger")
    return found


def claim(name: str) -> Claim:
    """The claim with the given id, to be shown next to its evidence.

    Raises:
        KeyError: if the ledger has no such claim.
    """
    if name not in claims():
        raise KeyError(f"no claim {name!r} in the ledger")
    return claims()[name]


def claims_of_chapter(chapter: str) -> Claims:
    """The claims that a chapter judges, in the ledger's order, to be shown at its end.

    Args:
        chapter: the chapter's name, as in ``"regression/softmax_and_lse"``.
    """
    return Claims(row for row in claims().values() if row.chapter == chapter)


def counts() -> dict[str, dict[str, int]]:
    """The number of claims by paper and verdict."""
    rows = claims().values()
    return {
        paper: {verdict: sum(row.paper == paper and row.verdict == verdict for row in rows) for verdict in VERDICTS}
        for paper in papers()
    }


def short(paper: str) -> str:
    """The first author and the year of a paper, as in ``"Ahn et al. (2023)"``."""
    return re.sub(r",.*(?= \()", " et al.", paper)


def prose(text: str) -> str:
    """A text with mathematics between dollar signs as HTML, which MathJax and JupyterLab both typeset."""
    parts = re.split(r"\$([^$]+)\$", text)
    return "".join(
        f'<span class="math notranslate nohighlight">\\({html.escape(part)}\\)</span>' if index % 2 else html.escape(part)
        for index, part in enumerate(parts)
    )
