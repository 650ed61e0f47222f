"""Checks of a reader's answers against the numbers that the solutions print.

``answers.toml`` holds, for each exercise, the answer, to how many digits it is compared (0: a whole number) and, if there is
one, a hint for who is wrong.

As a Sphinx extension the module puts a form in the place of each cell that asks, ``check("ex-NAME", ...)``; in it
``book/_static/answers.js`` compares in the same way.
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
ASKING = re.compile(r'check\("(ex-[\w-]+)", \.\.\.\)(?:  # (.+))?')  # a cell that asks; a comment says for what


@functools.cache
def answers() -> dict[str, dict]:
    """Value, digits and perhaps a hint of every exercise that has a checked answer.

    Raises:
        ValueError: if a row lacks a field, has an unknown one, or one of another type.
    """
    return parse(table("answers.toml"))


def parse(rows: dict[str, dict]) -> dict[str, dict]:
    """The rows as they are, once they are known to be complete.

    Raises:
        ValueError: as `answers`, naming the row.
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
    """Say whether a number answers an exercise; the last digit may be off by one.

    Args:
        name: the exercise's label, as in ``"ex-lse-three"``.
        answer: a number, or an array with one entry.

    Raises:
        KeyError: if no exercise of that name has a checked answer.
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
    """How far a right answer may be from the value: one and a half units of the last digit, 0 for a whole number."""
    exponent = int(f"{row['value']:e}".partition("e")[2])
    return 1.5 * 10.0 ** (exponent - row["digits"] + 1) * (1 + 1e-9) if row["digits"] else 0.0


def form(name: str, about: str = "") -> str:
    """HTML in which ``answers.js`` puts a form for a reader's answer; without scripts it says where else to check it.

    Args:
        name: the exercise's label.
        about: what of the exercise is asked for, if it asks for several things.

    Raises:
        KeyError: as `check`.
    """
    row = _row(name)
    hint = f'<span class="ao-hint" hidden>Hint: {prose(row["hint"])}</span>' if "hint" in row else ""
    return (
        f'<div class="ao-answer" data-name="{name}" data-about="{html.escape(about)}" data-digits="{row["digits"]}" '
        f'data-value="{row["value"]}" data-tolerance="{tolerance(row):.4g}"><p>Check your number in the notebook: '
        f"<code>check(&quot;{name}&quot;, your_number)</code></p>{hint}</div>"
    )


def put_forms(app, doctree) -> None:
    """Put a form in the place of each cell of a page that asks for an answer."""
    from docutils import nodes

    for cell in list(doctree.findall(lambda node: isinstance(node, nodes.container) and "cell" in node["classes"])):
        code = next(cell.findall(nodes.literal_block), None)
        if code and (asking := ASKING.fullmatch(code.astext().strip())):
            cell.parent.replace(cell, nodes.raw("", form(asking[1], asking[2] or ""), format="html"))


class ByDifficulty:
    """All exercises of the book as a Markdown table: a row per chapter, a column per level, each with its time and kind."""

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
                cells[one["level"]].append(f"{link}: {one['time']} {one['kind']}")
            lines.append(f"| {title} | " + " | ".join(", ".join(cell) or "–" for cell in cells.values()) + " |")
        return "\n".join(lines)


def setup(app) -> dict:
    """As a Sphinx extension: the forms."""
    app.connect("doctree-read", put_forms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
