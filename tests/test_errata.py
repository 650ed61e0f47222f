"""Every correction in the ledger is on the errata page, with a small script that runs and shows it."""

import re
import runpy
from pathlib import Path

import pytest

from attnopt.claims import claims

BOOK = Path(__file__).parent.parent / "book"
PAGE = (BOOK / "errata.md").read_text(encoding="utf-8")
SCRIPTS = sorted((BOOK / "errata").glob("*.py"))


def named(verdict):
    return {row.id for row in claims().values() if row.verdict == verdict}


def test_every_correction_has_a_script_and_every_script_a_correction():
    assert {path.stem for path in SCRIPTS} == named("corrected")


def test_the_page_shows_every_correction_its_script_and_its_row():
    corrections, _, rest = PAGE.partition("## Not reproduced")
    assert set(re.findall(r"<errata/([\w-]+)\.py>", corrections)) == named("corrected")
    assert set(re.findall(r'"ledger\.html#([\w-]+)"', corrections)) == named("corrected")
    assert set(re.findall(r'"ledger\.html#([\w-]+)"', rest)) == named("not reproduced")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script_shows_what_it_says_with_numpy_alone(path, capsys):
    text = path.read_text(encoding="utf-8")
    imports = set(re.findall(r"^(?:from|import) (\w+)", text, re.M))
    assert imports <= {"numpy", "math", "itertools", "functools", "fractions"}
    assert text.count("\n") <= 80
    assert "assert " in text
    runpy.run_path(str(path))
    assert capsys.readouterr().out
