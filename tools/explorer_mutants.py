"""Mutants of the explorers' modules, for tools/mutants.py: does Python's `compute` notice a change in the browser's?

Mutated are the module's own top-level functions and constants that its `compute` reaches by name, token by token; of those
that others import, such as `common.js`, what the modules of its row reach. Drawing is left alone. Each mutant's `compute` is
asked, in a worker of a headless Chromium, about the explorer's first state and random ones, and one number that is not
Python's kills it.
"""

import hashlib
import inspect
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PREFIX = "explorers/js/"
OTHERS = ("host", "shell", "worker", "runner", "panels")
UNIT = re.compile(r"^(?:export )?(const|let|function)\b", re.MULTILINE)
TOKEN = re.compile(
    r"""(?P<skip>//[^\n]*|"(?:\\.|[^"\\])*"|`(?:\\.|[^`\\])*`|\s+)
    |(?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)|(?P<word>[A-Za-z_$][\w$]*)
    |(?P<sign>[!=]==|\.\.\.|=>|\*\*|\+\+|--|&&|\|\||\?\?|\?\.|<=|>=|<<|>>|[-+*/%]=|.)""",
    re.DOTALL | re.VERBOSE,
)  # of the parts that are mutated, which have no regular expressions
PAIRS = "+ -,< <=,> >=,=== !==,&& ||,+= -=,*= /=,++ --,<< >>,& |,true false,min max,sin cos,floor ceil,some every,* /"
SWAPS = {"**": "*", "%": "*"} | {a: b for pair in PAIRS.split(",") for a, b in (pair.split(), pair.split()[::-1])}
DROPPED = {"abs", "sqrt", "exp", "log", "log1p", "round"}  # Math.abs(x) becomes (x)
ANSWERS = """([text, states, seconds]) => new Promise((resolve) => {
  const program = `onmessage = ({ data: [text, states] }) => {
    const compute = new Function(text)();
    postMessage(states.map((state) => JSON.stringify(compute(state)) ?? "null"));
  }`;
  const worker = new Worker(URL.createObjectURL(new Blob([program])));
  const end = (answer) => { worker.terminate(); resolve(answer); };
  worker.onmessage = ({ data }) => end(data);
  worker.onerror = (event) => end(event.message);
  setTimeout(() => end("timeout"), 1000 * seconds);
  worker.postMessage([text, states]);
})"""


class Change(NamedTuple):
    """One change: its name, the line, and the file's text with it."""

    name: str
    lines: range
    text: str


class Unit(NamedTuple):
    """A top-level function, or one name of a `const` or `let`: what it declares, and its tokens with their places."""

    names: set[str]
    tokens: list[tuple[str, str, int]]

    def reads(self) -> set[str]:
        """All names in it that are not read from an object."""
        return {
            word
            for (_, before, _), (kind, word, _) in zip([("", "", 0), *self.tokens], self.tokens, strict=False)
            if kind == "word" and before not in (".", "?.")
        }


def units(text: str) -> list[Unit]:
    """What a file declares at its top level."""
    found, starts = [], [match.start() for match in UNIT.finditer(text)]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        tokens = [(m.lastgroup, m[0], m.start()) for m in TOKEN.finditer(text, start, end) if m.lastgroup != "skip"]
        tokens = tokens[tokens[0][1] == "export" :]
        if tokens[0][1] == "function":
            found.append(Unit({tokens[1][1]}, tokens))
            continue
        parts, depth = [[]], 0
        for token in tokens[1:]:
            depth += (token[1] in "([{") - (token[1] in ")]}")
            if token[1] == "," and not depth:
                parts.append([])
            else:
                parts[-1].append(token)
        for part in parts:
            equals = next((at for at, token in enumerate(part) if token[1] == "="), len(part))
            found.append(Unit({word for kind, word, _ in part[:equals] if kind == "word"}, part))
    return found


def reached(parts: list[Unit], names: set[str]) -> list[Unit]:
    """The units that names lead to, directly or through others."""
    chosen = []
    while more := [part for part in parts if part not in chosen and part.names & names]:
        chosen += more
        names = names.union(*(part.reads() for part in more))
    return [part for part in parts if part in chosen]


def changes(tokens: list[tuple[str, str, int]], at: int) -> Iterator[tuple[int, int, str]]:
    """Where to put which other text in the place of a token."""
    kind, word, start = tokens[at]
    (before, last, _), (_, following, _) = tokens[at - 1] if at else ("", "", 0), (*tokens, ("", "", 0))[at + 1]
    end = start + len(word)
    if kind == "number":
        if tokens[max(at - 2, 0)][1] != "COLOURS":
            yield start, end, str(int(word) + 1) if word.isdigit() else f"(2 * {word} + 1)"
    elif kind == "word" and word in DROPPED and last == "." and tokens[at - 2][1] == "Math" and following == "(":
        yield tokens[at - 2][2], end, ""
    elif word == "!" or (word in ("-", "+") and before not in ("number", "word") and last not in (")", "]", "}")):
        yield start, end, ""
    elif word == "?":
        yield from ((start, end, "|| true ?"), (start, end, "&& false ?"))
    elif word in SWAPS and (kind == "sign" or last == "." or word in ("true", "false")):
        yield start, end, SWAPS[word]


def mutants(text: str, parts: list[Unit]) -> list[Change]:
    """All mutants of some units of a text, in its order."""
    found, count = [], Counter()
    for part in parts:
        for at in range(len(part.tokens)):
            for start, end, new in changes(part.tokens, at):
                left, right = text[max(0, start - 24) : start].rpartition("\n")[2], text[end : end + 16].partition("\n")[0]
                name = f"{min(part.names)}: {(left + text[start:end] + right).strip()} → {(left + new + right).strip()}"
                count[name] += 1
                line = text.count("\n", 0, start) + 1
                name += f" #{count[name]}" if count[name] > 1 else ""
                found.append(Change(name, range(line, line + 1), text[:start] + new + text[end:]))
    return found


def modules() -> list[str]:
    """The scripts that are mutated, as the table calls them: the others only draw, or hand messages on."""
    return sorted(PREFIX + path.stem for path in (ROOT / "src" / "attnbook").rglob("*.js") if path.stem not in OTHERS)


def names_asked(asked: list[str], file: str, read: Callable[[str], str]) -> set[str]:
    """The names that explorers' `compute` reads on its ways, through what they import, to a file."""
    from attnbook.explorer import needed

    names = {"compute"}
    for name in asked:
        for other in reversed(needed(name, read)):  # those that import before those that are imported
            if other == file:
                break
            names |= set().union(*(part.reads() for part in reached(units(read(other)), names)))
    return names


def program(name: str, changed: dict[str, str]) -> str:
    """A function's body that returns the module's `compute`, with some modules' texts changed."""
    from attnbook.explorer import bundle, module_text

    return f"{bundle(name, lambda one: changed.get(one) or module_text(one))}\nreturn parts.{name}.compute;"


class Browser:
    """Asks programs for their numbers, each in a worker of a blank page."""

    def __enter__(self):
        from playwright.sync_api import Error, sync_playwright

        from attnbook.chromium import launch

        self.playwright = sync_playwright().start()
        try:
            self.chromium = launch(self.playwright)
        except Error as error:
            sys.exit(f"mutants: no Chromium could be started (python3 run.py test installs one): {error}")
        self.page = self.chromium.new_page()
        return self

    def __exit__(self, *fault):
        self.chromium.close()
        self.playwright.stop()

    def answers(self, text: str, states: list[dict], seconds: float) -> list | str:
        """What a program computes for the states, or what became of it."""
        from playwright.sync_api import Error

        try:
            found = self.page.evaluate(ANSWERS, [text, states, seconds])
        except Error as error:  # the page ran out of memory
            self.page = self.chromium.new_page()
            return str(error)
        return found if isinstance(found, str) else [json.loads(answer) for answer in found]


class Module:
    """One module beside its explorer: the states, what Python computes for them, and whether a text does the same."""

    def __init__(self, name: str, row: dict):
        from explorer_states import TOLERANCES, explorers, settled

        self.name, self.explorers = name, explorers(name)
        self.near = (row["rtol"], row["atol"]) if "rtol" in row else TOLERANCES.get(name, ())
        self.states = [explorer.state() for explorer in self.explorers]
        self.expected = [settled(name, explorer.compute()) for explorer in self.explorers]
        self.limit = 300.0  # seconds in which a program must answer

    def differs(self, browser: Browser, text: str) -> str:
        """Where a program's numbers are not Python's: the first such state, or what became of the program."""
        from explorer_pages import assert_same
        from explorer_states import settled

        for some in (slice(2), slice(2, None)):  # two states tell most mutants
            found = browser.answers(text, self.states[some], self.limit)
            if isinstance(found, str):
                return found
            for explorer, mine, theirs in zip(self.explorers[some], self.expected[some], found, strict=True):
                try:
                    assert_same(mine, settled(self.name, theirs), *self.near)
                except (AssertionError, TypeError, ValueError, KeyError) as fault:
                    return f"{explorer!r}: {fault}"
        return ""


def prepared(module: str, row: dict) -> tuple[list[Change], str, str, Callable]:
    """What `examine` of tools/mutants.py needs: the mutants, hashes of the module and of its tests, and a judge."""
    import attnbook.explorers  # noqa: F401 - which makes them known
    from attnbook.explorer import KINDS
    from attnbook.explorer import module_text as read

    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "site")]
    file = module.removeprefix(PREFIX)
    asked = row.get("modules", [file])
    every = mutants(read(file), reached(units(read(file)), names_asked(asked, file, read)))
    sources = [read(name) for name in sorted({"common", file, *asked})]
    tests = [Path(inspect.getfile(KINDS[name])).read_text(encoding="utf-8") for name in asked]
    tests += [path.read_text(encoding="utf-8") for path in (Path(__file__), ROOT / "tests" / "explorer_states.py")]
    tests += [repr([row.get("rtol"), row.get("atol")])]

    def judge_all(wanted: list[Change], note: Callable[[str, str], None]) -> None:
        compared = [Module(name, row) for name in asked]
        with Browser() as browser:
            for one in compared:
                start = time.monotonic()
                if fault := one.differs(browser, program(one.name, {})):
                    sys.exit(f"mutants: {one.name}.js as it is does not compute what Python computes: {fault}")
                one.limit = 5 + 5 * (time.monotonic() - start)
            for change in wanted:
                faults = (one.differs(browser, program(one.name, {file: change.text})) for one in compared)
                note(change.name, "killed" if any(faults) else "survived")

    source, tested = (hashlib.sha256("".join(some).encode()).hexdigest() for some in (sources, tests))
    return every, source, tested, judge_all
