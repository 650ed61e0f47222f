"""Checks of a reader's answers against the numbers that the solutions print.

For each exercise, ``answers.toml`` holds the answer, the number of digits compared (0 for a whole number), and sometimes a
hint to show after a wrong answer.

As a Sphinx extension, the module replaces each cell that calls ``check("ex-NAME", ...)`` with a form;
``book/_static/answers.js`` checks the form's entry by the same rule.
"""

import functools
import html
import math
import numbers
import re

from attnbook.chapter_map import chapters
from attnbook.claims import prose
from attnbook.folder import find, table

EXERCISE = re.compile(r"\{exercise\} (?P<level>[●○]{3}) · (?P<time>.+?) · (?P<kind>.+)\n:label: (?P<label>\S+)")
ASKING = re.compile(r'check\("(ex-[\w-]+)", \.\.\.\)(?:  # (.+))?')  # a cell that asks for an answer; a comment says which


@functools.cache
def answers() -> dict[str, dict]:
    """The value, number of digits, and possibly hint of every exercise that has a checked answer.

    Raises:
        ValueError: if a row lacks a field or has an unknown field or one of the wrong type.
    """
    return parse(table("answers.toml"))


def parse(rows: dict[str, dict]) -> dict[str, dict]:
    """Check that the rows are complete, and return them unchanged.

    Raises:
        ValueError: as for `answers`; the message names the row.
    """
    for name, row in rows.items():
        if not {"value", "digits"} <= set(row) <= {"value", "digits", "hint"}:
            raise ValueError(f"answer {name} must have a value, digits and perhaps a hint, got {sorted(row)}")
        if type(row["digits"]) is not int or row["digits"] < 0:
            raise ValueError(f"answer {name}: digits must be a whole number, 0 or more, got {row['digits']!r}")
        if isinstance(row["value"], bool) or not isinstance(row["value"], numbers.Real) or not math.isfinite(row["value"]):
            raise ValueError(f"answer {name}: value must be a finite number, got {row['value']!r}")
        if not isinstance(row.get("hint", ""), str):
            raise ValueError(f"answer {name}: hint must be a text, got {row['hint']!r}")
    return rows


def check(name: str, answer) -> None:
    """Print whether a number answers an exercise; the last digit may be off by one.

    Args:
        name: the exercise's label, as in ``"ex-lse-three"``.
        answer: a number, or an array with one entry.

    Raises:
        KeyError: if no exercise with that label has a checked answer.
    """
    row = _row(name)
    digits = row["digits"]
    wanted = f"to {digits} digits" if digits else "a whole number"
    value = _number(answer)
    if answer is ...:
        print(f"{name}: put your number in place of the dots ({wanted})")
    elif value is None:
        print(f"{name}: please enter a number ({wanted}), not {type(answer).__name__}")
    elif not math.isfinite(value):
        print(f"{name}: {value} is not a finite number")
    elif not digits and value != round(value):
        print(f"{name}: please enter a whole number, not {value:g}")
    elif abs(value - row["value"]) <= tolerance(row):
        print(f"{name}: right ({wanted})")
    else:
        print(f"{name}: not yet ({wanted})" + (f"\nHint: {row['hint']}" if "hint" in row else ""))


def _row(name: str) -> dict:
    """The row of an exercise."""
    if name not in answers():
        raise KeyError(f"no checked answer for {name!r}; there are: {', '.join(answers())}")
    return answers()[name]


def _number(answer) -> float | None:
    """The answer as a float, or None if it is not a real number."""
    if isinstance(answer, (str, bytes, bool)):
        return None
    try:
        return float(answer)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor with several entries
        return None
    except OverflowError:
        return math.inf


def tolerance(row: dict) -> float:
    """The largest error of a right answer: one and a half units of the last digit, or 0 for a whole number."""
    exponent = int(f"{row['value']:e}".partition("e")[2])
    return 1.5 * 10.0 ** (exponent - row["digits"] + 1) * (1 + 1e-9) if row["digits"] else 0.0


def form(name: str, about: str = "") -> str:
    """HTML in which ``answers.js`` puts a form for a reader's answer; without scripts it gives the call for the notebook.

    Args:
        name: the exercise's label.
        about: which of the exercise's answers is asked for, if there are several.

    Raises:
        KeyError: as for `check`.
    """
    row = _row(name)
    hint = f'<span class="ao-hint" hidden>Hint: {prose(row["hint"])}</span>' if "hint" in row else ""
    return (
        f'<div class="ao-answer" data-name="{name}" data-about="{html.escape(about)}" data-digits="{row["digits"]}" '
        f'data-value="{row["value"]}" data-tolerance="{tolerance(row):.4g}"><p>Check your number in the notebook: '
        f"<code>check(&quot;{name}&quot;, your_number)</code></p>{hint}</div>"
    )


def put_forms(app, doctree) -> None:
    """Replace each cell of a page that asks for an answer with a form."""
    from docutils import nodes

    for cell in list(doctree.findall(lambda node: isinstance(node, nodes.container) and "cell" in node["classes"])):
        code = next(cell.findall(nodes.literal_block), None)
        if code and (asking := ASKING.fullmatch(code.astext().strip())):
            cell.parent.replace(cell, nodes.raw("", form(asking[1], asking[2] or ""), format="html"))


class ByDifficulty:
    """All exercises of the book, with time and kind, as a Markdown table: one row per chapter, one column per level."""

    def __init__(self):
        self.rows = {
            chapter: (title, list(EXERCISE.finditer(find(f"book/{chapter}.md").read_text(encoding="utf-8"))))
            for chapter, title in chapters().items()
        }

    def __repr__(self) -> str:
        return f"{sum(len(found) for _, found in self.rows.values())} exercises of {len(self.rows)} chapters"

    def _repr_markdown_(self) -> str:
        lines = ["| chapter | ●○○ | ●●○ | ●●● |", "|---|---|---|---|"]
        for chapter, (title, found) in self.rows.items():
            cells = {level: [] for level in ("●○○", "●●○", "●●●")}
            for number, one in enumerate(found, 1):
                link = f'<a href="{chapter}.html#{one["label"]}">{number}</a>'
                cells[one["level"]].append(f"{link}: {one['time']}, {one['kind']}")
            lines.append(f"| {title} | " + " | ".join("; ".join(cell) or "–" for cell in cells.values()) + " |")
        return "\n".join(lines)


def setup(app) -> dict:
    """Register the forms with Sphinx."""
    app.connect("doctree-read", put_forms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
