"""Every correction in the ledger is on the errata page, with a small script that runs and shows it."""

import re
from pathlib import Path

import pytest

from attnbook.claims import claims
from attnbook.errata import printed, same

BOOK = Path(__file__).parent.parent / "book"
PAGE = (BOOK / "errata.md").read_text(encoding="utf-8")
SCRIPTS = sorted((BOOK / "errata").glob("*.py"))


def papers_claims():
    """All but what the book states itself, of which its authors would want to know elsewhere."""
    return [row for row in claims().values() if row.paper != "book"]


def named(verdict):
    return {row.id for row in papers_claims() if row.verdict == verdict}


def test_every_correction_has_a_script_and_every_script_its_place():
    scripts = {path.stem for path in SCRIPTS}
    assert named("corrected") | named("holds with a caveat") <= scripts
    assert sorted(re.findall(r"<errata/([\w-]+)\.py>", PAGE)) == sorted(scripts)


def test_the_page_shows_every_row_that_is_not_as_printed_under_its_verdict():
    corrections, _, rest = PAGE.partition("## Holds with a caveat")
    scopes, _, rest = rest.partition("## Left open by the authors, answered")
    answered, _, experiments = rest.partition("## Experiments")
    rows = [set(re.findall(r'"ledger\.html#([\w-]+)"', part)) for part in (corrections, scopes, experiments, answered)]
    assert rows[0] == named("corrected") == set(re.findall(r"<errata/([\w-]+)\.py>", corrections))
    assert rows[1] == named("holds with a caveat")
    assert rows[2] == named("reproduced in part") | named("undecided") | named("not reproduced")
    assert rows[3] == named("answered")


def test_the_page_opens_with_the_weights_of_its_corrections_and_with_what_is_right():
    corrections = PAGE.partition("## Holds with a caveat")[0]
    words = ("changes a conclusion", "changes a constant or a reason", "a slip")
    for part in re.split(r"(?m)^## ", corrections)[1:]:
        weights = [line.rpartition(" · ")[2] for line in part.splitlines() if "ledger.html#" in line]
        assert weights == sorted(weights, key=words.index)
    tally = [len(re.findall(rf"</a> · {word}$", corrections, re.M)) for word in words]
    rows = papers_claims()
    theorems = [row for row in rows if row.kind == "theorem"]
    right = [row for row in rows if row.verdict == "holds"]
    seen = {verdict: len(named(verdict)) for verdict in ("reproduced", "reproduced in part", "undecided", "not reproduced")}
    assert f"Of the {sum(tally)} corrections, {tally[0]} change" in corrections
    assert f"conclusion, {tally[1]} change a constant" in corrections
    assert f"and {tally[2]} are slips" in corrections
    held = sum(row in right for row in theorems)
    assert f"Of the {len(theorems)} numbered theorems" in corrections
    assert f"judges, {held} hold as printed" in corrections
    others = [row.verdict for row in rows if row.kind not in ("theorem", "experiment") and row.verdict not in seen]
    assert f"Of the ledger's {len(others)} other entries" in corrections
    assert f"{others.count('holds')} hold as printed and {others.count('holds with a caveat')} with a caveat" in corrections
    assert f"{others.count('corrected')} are corrected, and {others.count('answered')} answer" in corrections
    assert f"Of the papers' {sum(seen.values())} experiments" in corrections
    assert f"we reproduced {seen['reproduced']} in full and {seen['reproduced in part']} in part" in corrections
    assert seen["not reproduced"] == 0 or "we refuted none" not in corrections


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script_shows_what_it_says_with_numpy_alone(path):
    text = path.read_text(encoding="utf-8")
    imports = set(re.findall(r"^(?:from|import) (\w+)", text, re.M))
    assert imports <= {"numpy", "math", "itertools", "functools", "fractions"}
    assert text.count("\n") <= 80
    assert "assert " in text
    assert same(printed(path), path.with_suffix(".txt").read_text(encoding="utf-8")), "run tools/errata.py"


def test_outputs_are_the_same_up_to_the_last_digit_and_no_further():
    assert same("norm 1.234, 3 of 4: True", "norm 1.235, 3 of 4: True")
    for other in ("norm 1.236, 3 of 4: True", "norm 1.234, 2 of 4: True", "norm 1.234, 3 of 4: False", "norm 1.234"):
        assert not same("norm 1.234, 3 of 4: True", other)
    assert same("change -3.2e-05 [ 0.44 -0.  ]", "change -3.1e-05 [0.44 0.  ]")
    assert not same("change -3.2e-05", "change -3.0e-05")
    assert {path.stem for path in SCRIPTS} == {path.stem for path in (BOOK / "errata").glob("*.txt")}
