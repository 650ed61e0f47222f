"""The notation page against the chapters: what a chapter writes stands there, with one meaning for each of its letters."""

import re
from collections import Counter

import pytest

from attnbook.folder import find, table
from attnbook.heads import notation, symbols

CHAPTERS = {
    f"{part['folder']}/{chapter['name']}": (f"Part {part['title'].partition(':')[0]}", chapter)
    for part in table("chapters.toml")["part"]
    for chapter in part["chapter"]
}
GREEK = """alpha beta gamma delta varepsilon epsilon zeta eta theta kappa lambda mu nu xi pi varpi rho sigma tau phi varphi
    chi psi omega Gamma Delta Theta Lambda Xi Pi varPi Sigma Phi Psi Omega ell""".split()  # noqa: SIM905
LETTER = re.compile(
    r"\\(?:bar|hat|tilde|dot(?!s)|mathcal|mathsf|mathbb|mathscr|mathfrak)\s*\{?\s*(?:\\(?:"
    + "|".join(GREEK)
    + r")(?![A-Za-z])|[A-Za-z])\s*\}?"
    r"|\\(?:" + "|".join(GREEK) + r")(?![A-Za-z])|(?<![\\A-Za-z])[A-Za-z](?![A-Za-z])"
)
INDICES = set("ijklmn")


def mathematics(text: str) -> list[str]:
    """The formulas of a text, displayed and in line."""
    displayed = re.findall(r"\$\$(.+?)\$\$", text, re.S)
    return displayed + re.findall(r"\$([^$]+)\$", re.sub(r"\$\$.+?\$\$", "", text, flags=re.S))


def letters(formula: str, scripts: bool = False) -> list[str]:
    """The letters of a formula but for functions' names and words, with their accents; those of subscripts only if asked."""
    formula = re.sub(r"\\(?:operatorname|text|mathrm|mathbf|begin|end|label)\{[^}]*\}|\\mathbf\s+\d", " ", formula)
    while not scripts and (bare := re.sub(r"[_^]\s*(?:\{[^{}]*\}|\\[A-Za-z]+|[^\\{\s])", " ", formula)) != formula:
        formula = bare
    formula = re.sub(r"\\[bBdt]?frac(\d)(\d)", r" \1 \2 ", formula)
    return [re.sub(r"[{}\s]", "", found) for found in LETTER.findall(re.sub(r"\\(?![A-Za-z])", " ", formula))]


def uncoded(text: str) -> str:
    """A text without its code cells."""
    return re.sub(r"^```\{code-cell\}.*?^```$|`[^`\n]*`", "", text, flags=re.S | re.M)


def story(text: str) -> str:
    """What a text says as its page opens: no code, no proofs, no folded sections, nothing from the exercises on."""
    text = re.sub(r"^:::\{prf:proof\}.*?^:::$", "", uncoded(text[: text.index("\n## Exercises")]), flags=re.S | re.M)
    return re.sub(r"^\(fold-[\w-]+\)=\n(#+) .*?(?=^\(?#{1,3} |^\([\w-]+\)=\n|\Z)", "", text, flags=re.S | re.M)


def written(name: str) -> Counter:
    """How often each letter stands in the formulas of a chapter's story."""
    text = find(f"book/{name}.md").read_text(encoding="utf-8")
    return Counter(letter for formula in mathematics(story(text)) for letter in letters(formula))


@pytest.mark.parametrize("name", sorted(CHAPTERS))
def test_what_a_chapter_writes_stands_among_its_symbols(name):
    part, chapter = CHAPTERS[name]
    known = {letter for row in symbols(part, chapter["symbols"]) for letter in letters(row.strip("$"))}
    everywhere = {letter for row in notation("In all parts") for formula in mathematics(row) for letter in letters(formula)}
    unknown = {
        letter: times for letter, times in written(name).items() if times >= 3 and letter not in known | everywhere | INDICES
    }
    assert unknown == {}


@pytest.mark.parametrize("name", sorted(CHAPTERS))
def test_a_chapter_names_no_symbol_that_it_does_not_write(name):
    part, chapter = CHAPTERS[name]
    text = find(f"book/{name}.md").read_text(encoding="utf-8")
    there = {letter for formula in mathematics(uncoded(text)) for letter in letters(formula, scripts=True)}
    rows = {row: set(letters(row, scripts=True)) for row in symbols(part, chapter["symbols"])}
    unused = [row for row, known in rows.items() if known and not there & known]
    assert unused == []


def heads(row: str) -> list[str]:
    """What a row of the notation defines: what stands left of its signs, without arguments."""
    sides = [re.split(r"=|\\in(?![a-z])", formula)[0] for formula in mathematics(row)]
    return [re.sub(r"\(.*|[\s{}]|\)", "", part) for side in sides for part in side.split(",") if part.strip() != r"\dots"]


# Two rows of one letter that a chapter may have both: the same thing in two places.
SAME = {r"\theta": "weights, of the linear and of the quadratic model", "Z": "features, at rest and along a flow"}


@pytest.mark.parametrize("name", sorted(CHAPTERS))
def test_a_letter_has_one_meaning_in_a_chapter(name):
    part, chapter = CHAPTERS[name]
    counted = Counter(head for row in symbols(part, chapter["symbols"]) for head in heads(row) if head not in SAME)
    assert [head for head, rows in counted.items() if rows > 1] == []
