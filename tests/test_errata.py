"""Every correction in the ledger is on the errata page, with a small script that runs and shows it."""

import re
import runpy
from pathlib import Path

import pytest

from bookkit.claims import claims

BOOK = Path(__file__).parent.parent / "book"
PAGE = (BOOK / "errata.md").read_text(encoding="utf-8")
SCRIPTS = sorted((BOOK / "errata").glob("*.py"))


def named(verdict):
    return {row.id for row in claims().values() if row.verdict == verdict and row.paper != "book"}


def test_every_correction_has_a_script_and_every_script_its_place():
    scripts = {path.stem for path in SCRIPTS}
    assert named("corrected") | named("holds, with a scope") <= scripts
    assert sorted(re.findall(r"<errata/([\w-]+)\.py>", PAGE)) == sorted(scripts)


def test_the_page_shows_every_row_that_is_not_as_printed_under_its_verdict():
    corrections, _, rest = PAGE.partition("## Holds, with a scope")
    scopes, _, rest = rest.partition("## Left open by the authors, answered")
    answered, _, experiments = rest.partition("## Experiments")
    rows = [set(re.findall(r'"ledger\.html#([\w-]+)"', part)) for part in (corrections, scopes, experiments, answered)]
    assert rows[0] == named("corrected") == set(re.findall(r"<errata/([\w-]+)\.py>", corrections))
    assert rows[1] == named("holds, with a scope")
    assert rows[2] == named("reproduced in part") | named("undecided") | named("not reproduced")
    assert rows[3] == named("answered")


def test_the_page_opens_with_the_weights_of_its_corrections_and_with_what_is_right():
    corrections = PAGE.partition("## Holds, with a scope")[0]
    words = ("changes a conclusion", "changes a constant or a reason", "a slip")
    for part in re.split(r"(?m)^## ", corrections)[1:]:
        weights = [line.rpartition(" · ")[2] for line in part.splitlines() if "ledger.html#" in line]
        assert weights == sorted(weights, key=words.index)
    tally = [len(re.findall(rf"</a> · {word}$", corrections, re.M)) for word in words]
    rows = [row for row in claims().values() if row.paper != "book"]
    theorems = [row for row in rows if row.kind == "theorem"]
    right = [row for row in rows if row.verdict == "holds"]
    seen = {verdict: len(named(verdict)) for verdict in ("reproduced", "reproduced in part", "undecided", "not reproduced")}
    assert f"Of the {sum(tally)} corrections {tally[0]} change" in corrections
    assert f"conclusion, {tally[1]} a constant" in corrections
    assert f"and {tally[2]} are slips" in corrections
    held = sum(row in right for row in theorems)
    assert f"of the {len(theorems)} numbered theorems" in corrections
    assert f"judges {held} hold as printed" in corrections
    assert f"{len(right) - held} more of its rows" in corrections
    assert f"of the papers' {sum(seen.values())} experiments" in corrections
    assert f"{seen['reproduced']} are reproduced and {seen['reproduced in part']} in part" in corrections
    assert seen["not reproduced"] == 0 or "none is refuted" not in corrections


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script_shows_what_it_says_with_numpy_alone(path, capsys):
    text = path.read_text(encoding="utf-8")
    imports = set(re.findall(r"^(?:from|import) (\w+)", text, re.M))
    assert imports <= {"numpy", "math", "itertools", "functools", "fractions"}
    assert text.count("\n") <= 80
    assert "assert " in text
    runpy.run_path(str(path))
    assert capsys.readouterr().out
