"""Mutants of the explorers' modules, for tools/mutants.py: does Python's `compute` notice a change in the browser's?

Mutated are the module's own top-level functions and constants that its `compute` reaches by name, token by token; of
`common.js` those that the modules of its row reach. Drawing is left alone. Each mutant's `compute` is asked, in a worker of
a headless Chromium, about the explorer's first state and random ones, and one number that is not Python's kills it.
"""

import hashlib
import json
import os
import random
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PREFIX, STATES = "explorers/js/", 24
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


def program(common: str, text: str) -> str:
    """A function's body that returns the module's `compute`."""
    from attnopt.explorers.base import IMPORT

    both = re.sub(r"^export default ", "void ", f"{common}\n{IMPORT.sub('', text)}", flags=re.MULTILINE)
    return re.sub(r"^export ", "", both, flags=re.MULTILINE) + "\nreturn compute;"


def drawn(trait: object, rng: random.Random) -> object:
    """A random value of a trait, some numbers at the ends of their interval or 0; None where only the class knows."""
    match type(trait).__name__:
        case "Interval" if rng.random() < 0.2:
            return rng.choice((trait.low, trait.high, max(trait.low, 0.0)))
        case "Interval" if trait.low > 0 and trait.high > 50 * trait.low:
            return trait.low * (trait.high / trait.low) ** rng.random()
        case "Interval":
            return rng.uniform(trait.low, trait.high)
        case "Points":
            return [[rng.uniform(-1, 1) * min(trait.reach, 3) for _ in point] for point in trait.default()]
        case "Enum":
            return rng.choice(trait.values)
        case "Bool":
            return rng.random() < 0.5
        case "Int" if trait.min is not None and trait.max is not None:
            return rng.randint(trait.min, trait.max)
    return None


def explorers(module: str) -> list:
    """An explorer in its first state, and in random ones, always the same."""
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "site")]
    from helpers import image_steps

    from attnopt import explorers as package
    from attnopt.clustering.sandbox import run_names

    [kind] = {value for value in vars(package).values() if getattr(value, "module", None) == module}
    traits = {name: trait for name, trait in kind.class_own_traits(sync=True).items() if not name.startswith("_")}
    names, rng, made = run_names(), random.Random(0), []
    for number in range(STATES):
        values = {name: drawn(trait, rng) for name, trait in traits.items()} if number else {}
        state = {name: value for name, value in values.items() if value is not None}
        match module:
            case "image_steps":
                state |= {"label": ("true", "predicted", "soft", "Bag")[number % 4], "image": number % 3}
                made.append(image_steps(number % 3, **state))
                continue
            case "sandbox":  # large: every run once
                made += [kind(runs=(names[number],), epoch=150 * number % 1001)] if number < len(names) else []
                continue
            case "layers" if number == 1:  # beyond all bounds
                state = {"model": "quadratic", "scheme": "strang", "step": 4.0, "layers": 3, "scale": 3.0}
            case "layers" if number:  # longer steps of many layers may be chaotic
                state |= {"step": rng.uniform(0.05, 1 / state["scale"]), "layers": rng.randint(1, 24)}
            case "softmax" if number:
                state["logits"] = [rng.uniform(-3, 3) for _ in range(3)]
            case "gdpp" if number:
                state["context"] = int(rng.choice(list(kind().table)))
            case "step_sizes" if number:
                state["dim"], state["n_context"] = map(int, rng.choice(list(kind().table)).split())
                state["own"] = [rng.uniform(0.02, 3) for _ in range(4)]
            case "task_model" if number:
                state["tokens"] = [rng.randint(0, 1) for _ in range(12)]
        made.append(kind(**state))
    return made


class Browser:
    """Asks programs for their numbers, each in a worker of a blank page."""

    def __enter__(self):
        from playwright.sync_api import Error, sync_playwright

        self.playwright = sync_playwright().start()
        found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        flags = ["--no-sandbox"] if getattr(os, "geteuid", lambda: 1)() == 0 else []  # as in tests/site/conftest.py
        try:
            self.chromium = self.playwright.chromium.launch(executable_path=found, args=[*flags, "--disable-gpu"])
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
        self.name, self.row, self.explorers = name, row, explorers(name)
        self.states = [explorer.state() for explorer in self.explorers]
        self.expected = [self.settled(explorer.compute()) for explorer in self.explorers]
        self.limit = 300.0  # seconds in which a program must answer

    def settled(self, numbers: dict) -> dict:
        """The numbers but for what is not determined: an eigenvector's sign, and all of it where eigenvalues lie close.

        What is left of eigenvectors is so small that it need only agree up to 1e-6, as in the browser's test.
        """
        if self.name == "softmax" and isinstance(numbers, dict) and "eigenvectors" in numbers:
            (large, small), vectors = numbers["eigenvalues"], numbers.pop("eigenvectors")
            clear = None not in (large, small) and large - small > 1e-4 and small > 1e-7
            numbers["axes"] = [[[1e-3 * x * y for x in v] for y in v] for v in vectors] if clear else []
        return numbers

    def differs(self, browser: Browser, text: str) -> str:
        """Where a program's numbers are not Python's: the first such state, or what became of the program."""
        from explorer_pages import assert_same

        for some in (slice(2), slice(2, None)):  # two states tell most mutants
            found = browser.answers(text, self.states[some], self.limit)
            if isinstance(found, str):
                return found
            for explorer, mine, theirs in zip(self.explorers[some], self.expected[some], found, strict=True):
                try:
                    assert_same(mine, self.settled(theirs), self.row.get("rtol", 1e-9), self.row.get("atol", 1e-9))
                except (AssertionError, TypeError, ValueError, KeyError) as fault:
                    return f"{explorer!r}: {fault}"
        return ""


def prepared(module: str, row: dict) -> tuple[list[Change], str, str, Callable]:
    """What `examine` of tools/mutants.py needs: the mutants, hashes of the module and of its tests, and a judge."""
    from attnopt.explorers.base import MODULES

    read = lambda name: (MODULES / f"{name}.js").read_text(encoding="utf-8")  # noqa: E731
    file, common = module.removeprefix(PREFIX), read("common")
    asked = row.get("modules", [file])
    needed = {"compute"}.union(*(part.reads() for name in asked for part in reached(units(read(name)), {"compute"})))
    every = mutants(read(file), reached(units(read(file)), needed if file == "common" else {"compute"}))
    sources = [read(name) for name in sorted({"common", file, *asked})]
    tests = [(MODULES.parent / f"{name}.py").read_text(encoding="utf-8") for name in asked]
    tests += [Path(__file__).read_text(encoding="utf-8"), repr([row.get("rtol"), row.get("atol")])]

    def judge_all(wanted: list[Change], note: Callable[[str, str], None]) -> None:
        compared = [Module(name, row) for name in asked]
        with Browser() as browser:
            for one in compared:
                start = time.monotonic()
                if fault := one.differs(browser, program(common, read(one.name))):
                    sys.exit(f"mutants: {one.name}.js as it is does not compute what Python computes: {fault}")
                one.limit = 5 + 5 * (time.monotonic() - start)
            for change in wanted:
                texts = [(change.text, read(one.name)) if file == "common" else (common, change.text) for one in compared]
                faults = (one.differs(browser, program(*text)) for one, text in zip(compared, texts, strict=True))
                note(change.name, "killed" if any(faults) else "survived")

    source, tested = (hashlib.sha256("".join(some).encode()).hexdigest() for some in (sources, tests))
    return every, source, tested, judge_all
