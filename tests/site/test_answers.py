"""Answers checked in the page: forms and questions work for every reader."""

import shutil
from pathlib import Path

import pydata_sphinx_theme
import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import Quiet, served

from attnbook.exercises import answers, form
from attnbook.questions import questions

BOOK = Path(__file__).parents[2] / "book"
THEME = Path(pydata_sphinx_theme.__file__).parent / "theme" / "pydata_sphinx_theme" / "static"
CHAPTER, COVERAGE, TWO = "regression/attention_is_a_gradient", "ex-decides-coverage", "Your answer, the first question"
PAGE = """<!doctype html><html lang="en" data-theme="{scheme}"><head><meta charset="utf-8"><title>Answers</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'self'; img-src data:; font-src 'self' data:">
<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">
<link rel="stylesheet" href="styles/pydata-sphinx-theme.css"><link rel="stylesheet" href="book.css">
<link rel="stylesheet" href="print.css"><link rel="stylesheet" href="answers.css"><script src="answers.js"></script></head>
<body class="bd-content"><main><h1>Answers</h1>
<div id="ex-conserved"><p><span class="caption-number">Exercise 3 </span></p></div>
{body}</main></body></html>"""
BODY = (
    f"{form('ex-conserved')}{form(COVERAGE, 'the first question')}{form('ex-crossover')}"
    f'<div class="cell_output"><div class="text_html">{questions(CHAPTER)._repr_html_()}</div></div>'
)
CONSERVED = "Your answer to Exercise 3 (to 4 digits)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the scripts and styles of a page, and its address."""
    folder = tmp_path_factory.mktemp("answers")
    for name in ("answers.js", "answers.css", "book.css", "print.css"):
        shutil.copy(BOOK / "_static" / name, folder)
    for name in ("styles", "vendor"):
        shutil.copytree(THEME / name, folder / name)
    for scheme in ("light", "dark"):
        (folder / f"{scheme}.html").write_text(PAGE.format(scheme=scheme, body=BODY), encoding="utf-8")
    with served(Quiet, folder) as address:
        yield address


@pytest.fixture
def show_answers(new_page, folder):
    """Open a small page with three forms and three questions."""

    def show_answers(width=1280, scheme="light", scripts=True, **device):
        page = new_page(folder, width, scheme, scripts, **device)
        page.goto(f"{folder}{scheme}.html", wait_until="load")
        return page

    return show_answers


NUMBERS = [
    ("1.5", 1.5), (" 1.5 ", 1.5), ("-1.5", -1.5), ("+2", 2), ("\N{MINUS SIGN}0.2747", -0.2747), (".5", 0.5), ("7.", 7),
    ("1e-3", 0.001), ("1E3", 1000), ("1.5e+2", 150), ("2e\N{MINUS SIGN}3", 0.002), ("3/4", 0.75), ("-3 / 4", -0.75),
    ("1/3", 1 / 3), ("1.5/2", 0.75),
]  # fmt: skip
COMPLAINTS = [
    ("", 4, "Type a number first."),
    ("  ", 0, "Type a number first."),
    ("1,5", 4, "Write a point and no comma, as in 1.5."),
    ("1,234.5", 4, "Write a point and no comma, as in 1.5."),
    ("log 3", 4, "A number is wanted, such as 1.5, -2, 1e-3 or 3/4."),
    ("1 5", 4, "A number is wanted, such as 1.5, -2, 1e-3 or 3/4."),
    ("1/2/3", 4, "A number is wanted, such as 1.5, -2, 1e-3 or 3/4."),
    ("0x10", 0, "A number is wanted, such as 1.5, -2, 1e-3 or 3/4."),
    (".", 4, "A number is wanted, such as 1.5, -2, 1e-3 or 3/4."),
    ("Infinity", 4, "A number is wanted, such as 1.5, -2, 1e-3 or 3/4."),
    ("1e999", 4, "That is not a finite number."),
    ("1/0", 4, "That is not a finite number."),
    ("0/0", 4, "That is not a finite number."),
    ("16.9", 0, "A whole number is wanted, not 16.9."),
]


def test_a_number_may_be_typed_in_many_ways_and_what_is_none_gets_a_sentence(show_answers):
    page, read = show_answers(), "([typed, digits]) => attnoptAnswers.read(typed, digits)"
    for typed, value in NUMBERS:
        assert page.evaluate(read, [typed, 4]) == {"value": value}, typed
    for typed, digits, says in COMPLAINTS:
        assert page.evaluate(read, [typed, digits]) == {"complaint": says}, typed


def said(page, name):
    """What a form has said."""
    return page.locator(f"[data-name={name}]").get_by_role("status")


def test_a_form_answers_the_keyboard_and_keeps_nothing(show_answers):
    page = show_answers()
    before = page.url
    page.keyboard.press("Tab")
    field = page.get_by_label(CONSERVED)
    assert field.evaluate("node => node === document.activeElement")
    page.keyboard.type("0.2747")
    page.keyboard.press("Enter")
    status = said(page, "ex-conserved")
    page.get_by_text("Not yet (to 4 digits).").wait_for()
    assert status.inner_text() == f"Not yet (to 4 digits). Hint: {answers()['ex-conserved']['hint']}"
    page.keyboard.press("Home")
    page.keyboard.type("\N{MINUS SIGN}")
    assert status.inner_text().strip() == ""  # it spoke of another number
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.get_by_text("Right (to 4 digits).").wait_for()
    assert status.inner_text().strip() == "Right (to 4 digits)."
    field.fill("-0,2747")
    field.press("Enter")
    assert status.inner_text().strip() == "Write a point and no comma, as in 1.5."
    assert page.url == before
    assert page.evaluate("localStorage.length + sessionStorage.length + document.cookie.length") == 0
    page.reload()
    assert page.get_by_label(CONSERVED).input_value() == ""
    assert page.complaints == []


def test_each_form_has_a_name_of_its_own_and_answers_for_itself(show_answers):
    page = show_answers()
    field = page.get_by_label(f"{TWO} (to 3 digits)")
    field.fill("7/2")
    field.press("Enter")
    page.get_by_text("Not yet (to 3 digits).").wait_for()
    assert said(page, COVERAGE).inner_text().strip().startswith("Not yet (to 3 digits). Hint: ")
    whole = page.get_by_label("Your answer (a whole number)")
    for typed, answer in (
        ("9.5", "A whole number is wanted, not 9.5."),
        ("9", "Not yet"),
        ("10", "Right (a whole number)."),
    ):
        whole.fill(typed)
        page.locator("[data-name=ex-crossover]").get_by_role("button", name="check").click()
        said(page, "ex-crossover").get_by_text(answer).wait_for()
    assert said(page, "ex-conserved").inner_text().strip() == ""


def test_questions_answer_the_keyboard_and_stay_open_to_another_choice(show_answers):
    page = show_answers()
    group = page.locator(".ao-question").nth(2)
    assert group.get_attribute("role") == "group"
    assert group.get_attribute("aria-labelledby") == group.locator("p").first.get_attribute("id")
    buttons = {name: group.get_by_role("button", name=name, exact=True) for name in ("true", "false", "under a condition")}
    details, status = group.locator("details"), group.get_by_role("status")
    assert not details.locator("p").is_visible()
    assert group.get_by_text("answer", exact=True).is_hidden()
    buttons["true"].press("Enter")
    assert status.inner_text() == "Not so: it is false."
    assert details.locator("p").inner_text().startswith("The gradient is ")
    buttons["true"].press("Tab")
    page.keyboard.press("Space")
    assert status.inner_text() == "Right: it is false."
    assert [button.get_attribute("aria-pressed") for button in buttons.values()] == ["false", "true", "false"]
    buttons["under a condition"].click()
    assert status.inner_text() == "Not so: it is false."
    assert details.locator("p").is_visible()
    assert page.locator(".ao-question").first.get_by_role("status").inner_text() == ""  # the others were not asked
    second = page.locator(".ao-question").nth(1)
    second.get_by_role("button", name="under a condition").click()
    assert second.get_by_role("status").inner_text() == "Right: it is true under a condition."
    assert page.evaluate("localStorage.length + sessionStorage.length") == 0
    assert page.complaints == []


def test_both_work_by_touch_on_a_phone(show_answers):
    page = show_answers(width=390, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for target in page.locator(".ao-answer :is(input, button), .ao-choices button").all():
        assert target.bounding_box()["height"] >= 36
    page.get_by_label(CONSERVED).tap()
    page.keyboard.type("-0.2747")
    page.locator("[data-name=ex-conserved]").get_by_role("button").tap()
    page.get_by_text("Right (to 4 digits).").wait_for()
    page.locator(".ao-question").first.get_by_role("button", name="true", exact=True).tap()
    assert page.locator(".ao-question").first.get_by_role("status").inner_text() == "Right: it is true."
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_are_accessible_in_both_schemes(scheme, show_answers):
    page = show_answers(width=390, scheme=scheme)
    page.get_by_label(CONSERVED).fill("1")
    page.get_by_label(CONSERVED).press("Enter")
    page.get_by_text("Not yet").wait_for()
    for group in page.locator(".ao-question").all():
        group.get_by_role("button", name="false").click()
    violations = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    assert [(violation["id"], [node["html"] for node in violation["nodes"]]) for violation in violations] == []
    paper = "node => getComputedStyle(node).backgroundColor"
    assert page.locator(".text_html").evaluate(paper) == "rgba(0, 0, 0, 0)"


def test_without_scripts_a_sentence_says_where_to_check_and_answers_unfold(show_answers):
    page = show_answers(scripts=False)
    assert page.locator("form, button").count() == 0
    place = page.locator("[data-name=ex-conserved]")
    assert place.inner_text() == 'Check your number in the notebook: check("ex-conserved", your_number)'
    assert page.locator(".ao-hint:visible").count() == 0
    question = page.locator(".ao-question").first
    assert not question.locator("details p").is_visible()
    question.get_by_text("answer", exact=True).click()
    assert question.locator("details p").inner_text().startswith("True. ")


def test_the_print_has_the_sentence_and_the_answers(show_answers):
    page = show_answers()
    page.emulate_media(media="print")
    assert page.locator(":is(form, .ao-choices, .ao-hint, .ao-question summary):visible").count() == 0
    assert page.locator(".ao-answer p:visible").count() == 3
    assert [text.split(".")[0] for text in page.locator(".ao-question details p").all_inner_texts()] == [
        question.answer.capitalize() for question in questions(CHAPTER).questions
    ]
    height = "nodes => nodes.map(node => node.getBoundingClientRect().height > 0)"
    assert page.locator(".ao-question details p").evaluate_all(height) == [True] * 3


def test_a_chapter_tells_a_right_answer(open_page):
    page = open_page(f"{CHAPTER}.html", mathematics=False)
    place = page.locator(".ao-answer[data-name=ex-conserved]")
    place.get_by_role("textbox").fill("-0.2747")
    place.get_by_role("textbox").press("Enter")
    place.get_by_text("Right (to 4 digits).").wait_for()


def test_without_scripts_a_chapter_has_the_sentence(open_page):
    page = open_page(f"{CHAPTER}.html", scripts=False)
    place = page.locator(".ao-answer[data-name=ex-conserved]")
    assert place.inner_text() == 'Check your number in the notebook: check("ex-conserved", your_number)'
