import json
import re
from pathlib import Path

import numpy as np
import pytest
import sympy as sp
import torch
from docutils import nodes
from docutils.utils import new_document

from attnbook import exercises
from attnbook.exercises import answers, check, form, parse, put_forms, tolerance

ROW = {"value": -2.35, "digits": 3}
CHAPTERS = sorted(Path(__file__).parent.parent.glob("book/*/*.md"))


def said(capsys, name, answer):
    check(name, answer)
    return capsys.readouterr().out.removeprefix(f"{name}: ").strip()


@pytest.mark.parametrize(
    "answer", [np.log(6), 1.792, 1.791, 1.793, sp.log(6), torch.tensor([6.0]).log(), np.float32(1.7918)]
)
def test_right_answers_of_every_kind(capsys, answer):
    assert said(capsys, "ex-lse-three", answer) == "right (to 4 digits)"


@pytest.mark.parametrize("answer", [1.79, 1.794, -1.792, 0, 6, 17.92, 1e300])
def test_wrong_answers(capsys, answer):
    assert said(capsys, "ex-lse-three", answer) == "not yet (to 4 digits)"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (..., "put your number in place of the dots (to 4 digits)"),
        ("1.792", "please enter a number (to 4 digits), not str"),
        (None, "please enter a number (to 4 digits), not NoneType"),
        (True, "please enter a number (to 4 digits), not bool"),
        (1j, "please enter a number (to 4 digits), not complex"),
        ([1.792], "please enter a number (to 4 digits), not list"),
        (np.ones(3), "please enter a number (to 4 digits), not ndarray"),
        (torch.ones(3), "please enter a number (to 4 digits), not Tensor"),
        (sp.Symbol("x"), "please enter a number (to 4 digits), not Symbol"),
        (float("nan"), "nan is not a finite number"),
        (float("-inf"), "-inf is not a finite number"),
        (10**400, "inf is not a finite number"),
    ],
)
def test_what_is_no_answer_gets_a_sentence(capsys, answer, says):
    assert said(capsys, "ex-lse-three", answer) == says


def test_whole_numbers_must_be_met(capsys):
    assert said(capsys, "ex-identify-positions", 17) == "right (a whole number)"
    assert said(capsys, "ex-identify-positions", torch.tensor(17.0)) == "right (a whole number)"
    assert said(capsys, "ex-identify-positions", 16).startswith("not yet (a whole number)")
    assert said(capsys, "ex-identify-positions", 16.9) == "please enter a whole number, not 16.9"


@pytest.mark.parametrize(
    ("value", "digits", "within", "beyond"),
    [
        (-2.35, 3, [-2.36, -2.34, -2.365], [-2.37, -2.33, 2.35]),
        (1.0, 4, [1.001, 0.999], [1.002, 0.998]),
        (0.0274, 3, [0.0275, 0.02745], [0.0276]),
        (1234.0, 2, [1300, 1100], [1400, 1080]),
        (17, 0, [17], [16, 18]),
    ],
)
def test_the_last_digit_may_be_off_by_one(value, digits, within, beyond):
    allowed = tolerance({"value": value, "digits": digits})
    assert all(abs(near - value) <= allowed for near in within)
    assert all(abs(far - value) > allowed for far in beyond)


def test_a_hint_follows_a_wrong_answer_and_no_other(capsys):
    hint = answers()["ex-conserved"]["hint"]
    assert said(capsys, "ex-conserved", 0.2747) == f"not yet (to 4 digits)\nHint: {hint}"
    assert said(capsys, "ex-conserved", -np.log(3) / 4) == "right (to 4 digits)"
    assert hint not in said(capsys, "ex-conserved", ...) + said(capsys, "ex-conserved", "0.2747")


def test_no_hint_gives_its_answer_away(capsys):
    hints = {name: row["hint"] for name, row in answers().items() if "hint" in row}
    assert {"ex-conserved", "ex-crossover"} <= set(hints)
    for name, hint in hints.items():
        for number in re.findall(r"\d+(?:\.\d+)?", hint):
            assert said(capsys, name, float(number)).startswith("not yet")
            assert said(capsys, name, -float(number)).startswith("not yet")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"digits": 3}, r"answer ex-a must have a value, digits and perhaps a hint, got \['digits'\]"),
        (ROW | {"clue": "x"}, "answer ex-a must have a value, digits and perhaps a hint, got"),
        (ROW | {"digits": -1}, "answer ex-a: digits must be a whole number, 0 or more, got -1"),
        (ROW | {"digits": True}, "answer ex-a: digits must be a whole number, 0 or more, got True"),
        (ROW | {"digits": 2.0}, "answer ex-a: digits must be a whole number, 0 or more, got 2.0"),
        (ROW | {"value": "abc"}, "answer ex-a: value must be a finite number, got 'abc'"),
        (ROW | {"value": True}, "answer ex-a: value must be a finite number, got True"),
        (ROW | {"value": np.nan}, "answer ex-a: value must be a finite number, got nan"),
        (ROW | {"hint": 7}, "answer ex-a: hint must be a text, got 7"),
    ],
)
def test_a_malformed_row_is_named(row, says):
    assert parse({"ex-a": ROW, "ex-b": ROW | {"digits": 0, "hint": "x"}})
    with pytest.raises(ValueError, match=says):
        parse({"ex-a": row})


def page(*cells):
    """A page as MyST-NB makes it: cells, each of a code and perhaps an output."""
    document = new_document("page")
    for code, *output in cells:
        cell = nodes.container("", nodes.container("", nodes.literal_block(code, code)), classes=["cell"])
        document += cell
        cell += [nodes.container("", nodes.literal_block(text, text)) for text in output]
    return document


def test_a_form_takes_the_place_of_a_cell_that_asks():
    code = 'check("ex-lse-three", ...)'
    document = page(("1 + 1", "2"), (code, "ex-lse-three: put your number"), (f"{code}  # the <first> question",))
    put_forms(None, document)
    first, second, third = document.children
    assert first.astext() == "1 + 1\n\n2"
    assert second.astext() == form("ex-lse-three")
    assert third.astext() == form("ex-lse-three", "the <first> question")
    assert 'data-about="the &lt;first&gt; question"' in third.astext()
    assert second["format"] == "html"
    assert second["classes"] == []  # or it would be put in a cell after all


@pytest.mark.parametrize(
    "code",
    ['check("ex-lse-three", 1.79)', 'x = 1\ncheck("ex-lse-three", ...)', 'check("ex-lse-three", ...)\nx', "", "..."],
)
def test_other_cells_stay(code):
    document = page((code, "out"))
    before = document.pformat()
    put_forms(None, document)
    assert document.pformat() == before


def test_a_form_has_what_its_script_needs_and_says_what_to_do_without(monkeypatch):
    monkeypatch.setattr(exercises, "answers", lambda: {"ex-a": ROW | {"hint": "Is $x < y$?"}})
    assert form("ex-a") == (
        '<div class="ao-answer" data-name="ex-a" data-about="" data-digits="3" data-value="-2.35" data-tolerance="0.015">'
        "<p>Check your number in the notebook: <code>check(&quot;ex-a&quot;, your_number)</code></p>"
        r'<span class="ao-hint" hidden>Hint: Is <span class="math notranslate nohighlight">\(x &lt; y\)</span>?</span></div>'
    )
    with pytest.raises(KeyError, match="no checked answer for 'ex-b'"):
        form("ex-b")


def test_unknown_exercises_are_named():
    with pytest.raises(KeyError, match="no checked answer for 'ex-none'; there are: ex-lse-three"):
        check("ex-none", 1)


def test_every_checked_exercise_is_asked_in_a_chapter_and_its_solution_is_right():
    asked, solved = set(), set()
    for path in CHAPTERS:
        text = path.read_text(encoding="utf-8")
        asked |= set(re.findall(r'```\{code-cell\} ipython3\ncheck\("(ex-[\w-]+)", \.\.\.\)[^\n]*\n```', text))
        notebook = json.loads(path.with_suffix(".ipynb").read_text(encoding="utf-8"))
        printed = "".join("".join(o.get("text", "")) for cell in notebook["cells"] for o in cell.get("outputs", []))
        solved |= set(re.findall(r"^(ex-[\w-]+): right", printed, re.M))
    assert asked == solved == set(answers())
