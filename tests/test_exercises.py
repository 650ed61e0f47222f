import json
import re
from pathlib import Path

import numpy as np
import pytest
import sympy as sp
import torch

from bookkit.exercises import answers, check, fingerprint, neighbours

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
        ("1.792", "a number is wanted (to 4 digits), not str"),
        (None, "a number is wanted (to 4 digits), not NoneType"),
        (True, "a number is wanted (to 4 digits), not bool"),
        (1j, "a number is wanted (to 4 digits), not complex"),
        ([1.792], "a number is wanted (to 4 digits), not list"),
        (np.ones(3), "a number is wanted (to 4 digits), not ndarray"),
        (torch.ones(3), "a number is wanted (to 4 digits), not Tensor"),
        (sp.Symbol("x"), "a number is wanted (to 4 digits), not Symbol"),
        (float("nan"), "nan is no finite number"),
        (float("-inf"), "-inf is no finite number"),
        (10**400, "inf is no finite number"),
    ],
)
def test_what_is_no_answer_gets_a_sentence(capsys, answer, says):
    assert said(capsys, "ex-lse-three", answer) == says


def test_whole_numbers_have_no_neighbours(capsys):
    assert said(capsys, "ex-identify-positions", 17) == "right (a whole number)"
    assert said(capsys, "ex-identify-positions", torch.tensor(17.0)) == "right (a whole number)"
    assert said(capsys, "ex-identify-positions", 16) == "not yet (a whole number)"
    assert said(capsys, "ex-identify-positions", 16.9) == "a whole number is wanted, not 16.9"
    assert neighbours(17, 0) == [17]


def test_the_last_digit_may_be_off_by_one_on_either_side_of_a_power_of_ten():
    assert neighbours(0.99996, 4) == pytest.approx([1.0, 0.999, 1.001])
    assert neighbours(-2.34567, 3) == pytest.approx([-2.35, -2.36, -2.34])
    assert neighbours(0.0, 3) == [0.0]


def test_answers_are_salted_and_unknown_exercises_named():
    assert fingerprint("ex-a", 1.0, 4) != fingerprint("ex-b", 1.0, 4)
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
