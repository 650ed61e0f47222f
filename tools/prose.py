"""Style of the chapters: what a reviewer should not have to say. `--fix` formats the code cells."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from notebooks import BOOK, FOLDED, ROOT, sources

CODE_WIDTH = 84  # what fits the page's column without scrolling
CELL = re.compile(r"^(```\{code-cell\} ipython3\n)(.*?)(^```$)", re.M | re.S)
HEADER = re.compile(r"\A(---\n.*?^---\n|(?::\w[^\n]*\n)+\n?)?", re.M | re.S)
REQUIRED = ("**What you need.**", "**Time to run.**")
SECTIONS = ("## Exercises", "## What the papers say", "## Related work")
STATED = "## What this chapter states"  # in Part IV, whose claims are the book's own
EXERCISE = re.compile(r"^:::\{exercise\}(.*)$", re.M)
ASKED = re.compile(r" (●○○|●●○|●●●) · \d+ (minutes|hours?) · (by hand|in code|research)")
TEACHING = 15  # lines of a cell that stays open, and at most so many cells:
CELLS = 5
DISPLAY = re.compile(r"^\$\$.*?\$\$([^\n]*)$", re.M | re.S)
LABEL = re.compile(r" \(eq-[\w-]+\)")
# In viewers that know no directives, what stands between colons is ordinary Markdown, what stands between backticks is code.
FENCED = re.compile(r"^```(\{(?:prf:[a-z]+|exercise|solution-start|solution-end|container|include)\})", re.M)
LIST = re.compile(r"^\d+\. ")
TWO_SENTENCES = re.compile(r"[a-z0-9)\]$*`}][.?!] [A-Z$*`]")
# What is always wrong in these texts, and what to write.
EACH = "rows? values? points? bars? columns? curves? runs? seeds? models? vectors? steps? numbers? tests? claims?".replace(
    " ", "|"
)
ONE = "token|layer|row|class|model|run|setting|seed|sequence|column|position|vector|query|head|epoch|feature|chapter"
ISE = "(?:general|initial|maxim|memor|minim|normal|optim|quant|regular)is(?:e[drs]?|ers|ing|ation)"
BRITISH = r"colour\w*|neighbour\w*|favour\w*|centred?|labelled|towards|learnt|greys?"
WRONG = {
    r"\bin the mean\b(?! (?:of|spectrum)\b)": "on average",
    r"\banew\b": "again, redrawn, or separately",
    r"\bfor ever\b": "forever",
    r"\bexactly if\b": "if and only if",
    r"\b[Aa]t which rate\b": "at what rate",
    r"\b[Ww]hich share (?:of|does|is)\b": "what share",
    r"\bYou said\b": "say whether the answer was right",
    r"(?:^|[.:] )So it is[.,;]": "name what holds",
    r"\bper cent\b|\d %(?! \d)": "12%",
    r"\buses that\b": "uses the fact that",
    rf"\b(?!run a chapter)(?:{EACH}) an? (?:{ONE})\b": "per",
    rf"(?<![\w-])(?:{ISE}|{BRITISH})\b(?!-)": "American spelling",
}


def ruff(arguments: list, **options) -> subprocess.CompletedProcess:
    """Run ruff and keep what it prints."""
    command = [sys.executable, "-m", "ruff", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", **options)


def split(cell: str) -> tuple[str, str]:
    """The header of a cell, and its code."""
    header = HEADER.match(cell)[0] or ""
    return header, cell[len(header) :]


def formatted(text: str) -> str:
    """The chapter with every code cell formatted; a cell that is no Python stays as it is."""
    with tempfile.TemporaryDirectory() as folder:  # all cells in one call
        files = []
        for match in CELL.finditer(text):
            files.append(Path(folder) / f"cell{len(files)}.py")
            files[-1].write_text(split(match[2])[1], encoding="utf-8", newline="\n")
        style = ["--config", ROOT / "pyproject.toml", "--config", f"line-length={CODE_WIDTH}"]
        ruff(["format", "--no-cache", *style, "."], cwd=folder)
        tidy = iter([file.read_text(encoding="utf-8") for file in files])
    return CELL.sub(lambda match: match[1] + split(match[2])[0] + next(tidy) + match[3], text)


def prose_lines(text: str) -> list[tuple[int, str]]:
    """The numbered lines of plain paragraphs: no code, mathematics, directives, tables, lists or headings."""
    found, closing = [], None
    for number, line in enumerate(text.splitlines(), 1):
        if closing:
            closing = None if line.startswith(closing) else closing
        elif line == "---" or line.startswith(("$$", "```{code-cell}")):
            closing = line[:3].strip()
        elif line and not line.startswith(("```", ":", "|", "- ", "#", " ")):
            found.append((number, LIST.sub("", line)))
    return found


def faults(text: str, chapter: bool) -> list[str]:
    """Ways in which a text breaks the style; `chapter` adds what every chapter must have."""
    found = []
    if formatted(text) != text:
        found.append("code cells are not formatted: `.venv/bin/python tools/prose.py --fix`")
    cells = [(text[: match.start()].count("\n") + 1, match[2]) for match in CELL.finditer(text)]
    code, places = [], []  # all the chapter's code, and the line of the chapter for each of its lines
    for line, cell in cells:
        header, body = split(cell)
        code += body.splitlines()
        places += range(line + 1 + header.count("\n"), line + 1 + header.count("\n") + len(body.splitlines()))
    lint = ["check", "--output-format", "concise", "--quiet", "--ignore", "D,E402,E501,E731,B018,B023,F811,I001"]
    done = ruff([*lint, "--stdin-filename", "cell.py", "-"], input="\n".join([*code, ""]), cwd=ROOT)
    for report in (done.stdout + done.stderr).splitlines() if done.returncode else []:
        if told := re.match(r"cell\.py:(\d+):\d+: (?:\w+ )?(?:\[\*\] )?(.*)", report):
            found.append(f"line {places[min(int(told[1]), len(places)) - 1] if places else 1}: code: {told[2]}")
    found += [
        f"line {line + offset}: code wider than {CODE_WIDTH} columns"
        for line, cell in cells
        for offset, code_line in enumerate(cell.splitlines(), 1)
        if len(code_line) > CODE_WIDTH and "caption:" not in code_line and "alt:" not in code_line
    ]
    for line, cell in cells:
        if "plt.subplots" in cell or "plt.figure" in cell:
            header, _ = split(cell)
            missing = [word for word in ("name: fig-", "caption:", "alt:") if word not in header]
            found += [f"line {line}: the figure has no `{word}`" for word in missing]
    for pattern, advice in (
        ("set_title", "captions, not titles: say it in the `caption:` of the cell's header"),
        (r"\begin{align}", "use `aligned` inside a labeled equation"),
        ("^T", r"transpose is `^\top`"),
        ("```python\n", "this block does not run: open it with ```{code-cell} ipython3"),
    ):
        found += [f"line {text[: at.start()].count(chr(10)) + 1}: {advice}" for at in re.finditer(re.escape(pattern), text)]
    found += [
        f"line {text[: at.start()].count(chr(10)) + 1}: open {at[1]} with `:::`, or its formulas are raw source elsewhere"
        for at in FENCED.finditer(text)
    ]
    found += [
        f"line {text[: at.start()].count(chr(10)) + 1}: the equation has no label: end it with `$$ (eq-name)`"
        for at in DISPLAY.finditer(text)
        if not LABEL.fullmatch(at[1])
    ]
    found += wrong(text)
    found += [
        f"line {number}: one sentence a line: break it where a sentence ends"
        for number, line in prose_lines(text)
        if TWO_SENTENCES.search(line)
    ]
    if chapter:
        sections = [STATED if "papers" in section and STATED in text else section for section in SECTIONS]
        found += [f"lacks `{part}`" for part in (*REQUIRED, *sections) if part not in text]
        places = [text.find(section) for section in sections]
        if places != sorted(places):
            found.append(f"its last sections must be {', '.join(sections)}, in this order")
        if not cells or "hide-input" not in split(cells[0][1])[0]:
            found.append(f"line {cells[0][0] if cells else 1}: the first cell sets up: fold it with `:tags: [hide-input]`")
        exercises = EXERCISE.findall(text)
        if not 3 <= len(exercises) <= 5:
            found.append(f"has {len(exercises)} exercises; three to five are wanted")
        if text.count(":::{solution-start}") != len(exercises) or text.count(":::{solution-end}") != len(exercises):
            found.append("not every exercise has a solution")
        found += [
            f"the exercise `{head.strip()}` lacks how hard, how long and of which kind: `●●○ · 15 minutes · by hand`"
            for head in exercises
            if not ASKED.fullmatch(head)
        ]
        story = text[: text.find("## Exercises")]
        for word in ("questions(", "claims_of_chapter("):
            if f"\n{word}" not in text:
                found.append(f"does not show `{word})`")
        teaching = [(line, split(cell)) for line, cell in cells if line <= story.count("\n")]
        teaching = [(line, body) for line, (head, body) in teaching if not FOLDED & set(re.findall(r"[\w-]+", head))]
        if len(teaching) > CELLS:
            found.append(f"shows the code of {len(teaching)} cells before the exercises; {CELLS} teach more")
        found += [
            f"line {line}: {body.strip().count(chr(10)) + 1} lines of open code; fold it, or leave {TEACHING}"
            for line, body in teaching
            if body.strip().count("\n") + 1 > TEACHING
        ]
    return found


def wrong(text: str) -> list[str]:
    """Phrases that are always wrong, outside code, links, and names."""
    blank = lambda match: re.sub(r"[^\n]", " ", match[0])  # noqa: E731
    code = lambda match: "".join(  # noqa: E731
        line if re.match(r" *(caption|alt):", line) else re.sub(r"[^\n]", " ", line)
        for line in match[0].splitlines(keepends=True)
    )
    plain = re.sub(r"`[^`\n]*`|\{[a-z:]+\}`[^`]*`|<[^>]*>|\([\w-]+\)=", blank, CELL.sub(code, text))
    return [
        f"line {text[: at.start()].count(chr(10)) + 1}: “{at[0].strip()}”: write {advice}"
        for pattern, advice in WRONG.items()
        for at in re.finditer(pattern, plain, re.M)
    ]


def main() -> None:
    """Check, or with `--fix` format, every text of the book; phrases also in its tables and beside it."""
    bad = 0
    for path in sorted([*BOOK.glob("*.toml"), *ROOT.glob("*.md")]):
        for fault in wrong(path.read_text(encoding="utf-8")):
            print(f"{path.relative_to(ROOT)}: {fault}")
            bad += 1
    with_kernel = set(sources())
    for path in sorted(BOOK.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        if "--fix" in sys.argv[1:] and formatted(text) != text:
            text = formatted(text)
            path.write_text(text, encoding="utf-8", newline="\n")
        for fault in faults(text, chapter=path in with_kernel and path.parent != BOOK):
            print(f"{path.relative_to(ROOT)}: {fault}")
            bad += 1
    if bad:
        sys.exit(1)


if __name__ == "__main__":
    main()
