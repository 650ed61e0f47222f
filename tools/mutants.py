"""Mutation tests: change the package in one small place at a time and see whether its tests notice.

    .venv/bin/python tools/mutants.py [--seed WORD] [--sample N] [MODULE ...]     modules as in tests/mutants.toml

A mutant is one changed node of a module's syntax tree: a number plus one, an operator or a comparison turned into its
neighbour, a condition negated, a transpose or a keyword left out, a statement deleted. Each is tried in a process forked
from one that has run the module's tests once, with those that run the changed line; the first failure kills it. The
explorers' modules, explorers/js/NAME, are JavaScript: tools/explorer_mutants.py changes them. Results are kept in
`.cache/mutants` as they come, and a later call goes on where this one stopped. A changed module is tried anew, changed
tests on the survivors only; to begin from nothing, remove that folder.

Of a module with many mutants a sample is drawn, from the hash of the commit: another commit tries others. `--seed` takes
any word in its place, such as the one that an earlier run has printed, and `--sample` another size for all modules.

`tests/mutants.toml` names each module's tests and its known survivors with the reason why each is harmless; one that
begins with "equivalent" says that nothing could tell the mutant. A survivor that is not listed there fails the run, and
so does a listed one that is drawn and killed after all, or whose mutant is gone. A table of what was found comes last.
"""

import argparse
import ast
import builtins
import collections
import contextlib
import copy
import functools
import gc
import hashlib
import importlib.util
import json
import math
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
import types
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import NamedTuple

import explorer_mutants

ROOT = Path(__file__).resolve().parent.parent
SOURCE, TABLE, CACHE = ROOT / "src", ROOT / "tests" / "mutants.toml", ROOT / ".cache" / "mutants"
LIBRARIES = (
    "torch", "torch._dynamo", "scipy.integrate", "scipy.optimize", "scipy.special", "sympy", "mpmath",
    "hypothesis.strategies", "pytest", "coverage", "matplotlib.figure", "anywidget", "ipywidgets", "joblib", "pooch",
    "requests", "filelock", "tqdm",
)  # fmt: skip
BROKEN, TERMINAL = 70, os.dup(2)  # a forked process's exit code where this tool fails, and where it says so
MEMORY = 6 * 2**30  # a mutant may ask for so much more than it begins with

OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.MatMult: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift,
}  # fmt: skip
COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
PAIRS = ("min max", "amin amax", "argmin argmax", "clamp_min clamp_max", "sum mean", "sin cos", "any all", "floor ceil")
NAMES = {a: b for pair in PAIRS for a, b in (pair.split(), pair.split()[::-1])}
DROPPED = {"mT", "T", "square", "sqrt", "rsqrt", "abs", "exp", "log", "reciprocal", "sign"}  # x.mT becomes x, x.exp() too


class Mutant(NamedTuple):
    """One change: its name, the lines of the statement around it, and the place in the tree where the new node goes."""

    name: str
    lines: range
    parent: ast.AST
    field: str
    index: int | None
    new: ast.AST

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """The tree with the change in it."""
        place = getattr(self.parent, self.field)
        if self.index is None:
            setattr(self.parent, self.field, self.new)
        else:
            old, place[self.index] = place[self.index], self.new
        yield
        if self.index is None:
            setattr(self.parent, self.field, place)
        else:
            place[self.index] = old


def changes(node: ast.AST, parent: ast.AST, field: str) -> Iterator[ast.AST]:
    """The nodes that may stand in a node's place."""

    def like(**fields: object) -> ast.AST:
        new = copy.copy(node)
        for name, value in fields.items():
            setattr(new, name, value)
        return new

    match node:
        case ast.Constant(value=bool()):
            yield like(value=not node.value)
        case ast.Constant(value=int() | float()):
            yield like(value=node.value + 1)
        case ast.BinOp() | ast.AugAssign() if type(node.op) in OPERATORS:
            yield like(op=OPERATORS[type(node.op)]())
        case ast.Compare():
            for at, operator in enumerate(node.ops):
                yield like(ops=[*node.ops[:at], COMPARISONS[type(operator)](), *node.ops[at + 1 :]])
        case ast.BoolOp():
            yield like(op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        case ast.UnaryOp():
            yield node.operand
        case ast.Call():
            for at in (at for at, keyword in enumerate(node.keywords) if keyword.arg):
                yield like(keywords=[*node.keywords[:at], *node.keywords[at + 1 :]])
            if isinstance(node.func, ast.Attribute) and node.func.attr in DROPPED and not node.args:
                yield node.func.value
        case ast.Attribute(attr="mT" | "T"):
            yield node.value
        case ast.Attribute() if node.attr in NAMES:
            yield like(attr=NAMES[node.attr])
        case ast.Name() if hasattr(builtins, NAMES.get(node.id, "")) and isinstance(node.ctx, ast.Load):
            yield like(id=NAMES[node.id])
        case ast.Raise() | ast.Expr(value=ast.Call()) | ast.Assign(targets=[ast.Subscript() | ast.Attribute()]):
            yield ast.copy_location(ast.Pass(), node)
        case ast.Continue():
            yield ast.copy_location(ast.Break(), node)
        case ast.Break():
            yield ast.copy_location(ast.Continue(), node)
    if (field == "test" and not isinstance(node, ast.UnaryOp | ast.Compare)) or (
        isinstance(parent, ast.comprehension) and field == "ifs"
    ):
        yield ast.copy_location(ast.UnaryOp(ast.Not(), node), node)


def mutants(tree: ast.Module) -> list[Mutant]:
    """All mutants of a module, in the order of the text."""
    found, count = [], collections.Counter()

    def visit(parent: ast.AST, where: str, lines: range) -> None:
        for field, value in ast.iter_fields(parent):
            if field in ("annotation", "returns", "decorator_list", "type_params", "exc", "cause", "format_spec"):
                continue
            for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if not isinstance(node, ast.AST):
                    continue
                inside, here = where, lines
                if isinstance(node, ast.stmt):
                    body = getattr(node, "body", None)
                    here = range(node.lineno, body[0].lineno if isinstance(body, list) else node.end_lineno + 1)
                if isinstance(node, ast.FunctionDef | ast.ClassDef):
                    inside = f"{where}.{node.name}" if where else node.name
                for new in changes(node, parent, field):
                    name = f"{inside}: {ast.unparse(node)} → {ast.unparse(new)}"
                    count[name] += 1
                    name += f" #{count[name]}" if count[name] > 1 else ""
                    found.append(Mutant(name, here, parent, field, index, new))
                visit(node, inside, here)

    visit(tree, "", range(0))
    return found


def forked(task: Callable[[], int], seconds: float) -> int | None:
    """The exit code of a task in a process of its own; None if it did not end in time and was killed."""
    process = os.fork()
    if not process:
        code = BROKEN
        try:
            os.setpgid(0, 0)
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(nowhere, stream)
            code = task()
        except BaseException:  # of this tool: a test's own never come so far
            os.write(TERMINAL, traceback.format_exc().encode())
        finally:
            os._exit(code)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return None


def home(module: str) -> str:
    """A module's place in `src`; the table names those of attnopt without their package."""
    return module if module.startswith("attnbook/") else f"attnopt/{module}"


class Quick:
    """A pytest plugin: hypothesis looks for failures without polishing them, and the table of all functions is cut short."""

    def __init__(self, module: str):
        self.name = home(module).replace("/", ".")

    def pytest_configure(self):
        """After the conftest has loaded its profile."""
        from hypothesis import HealthCheck, Phase, settings

        quick = {"phases": (Phase.explicit, Phase.generate), "report_multiple_bugs": False}
        quick["suppress_health_check"] = list(HealthCheck)  # slowness is the machine's, and kills nothing
        settings.register_profile("mutants", settings.default, **quick)
        settings.load_profile("mutants")

    def pytest_collection_modifyitems(self, items):
        """Of tests with a parameter ``function`` keep those whose function is the module's, if there are such."""
        given = [getattr(item, "callspec", None) and item.callspec.params.get("function") for item in items]
        if any(f and f.__module__ == self.name for f in given):
            items[:] = [item for item, f in zip(items, given, strict=True) if f is None or f.__module__ == self.name]


def pytest_run(tests: list[str], plugin: object) -> int:
    """Run tests until the first fails; pytest's exit code."""
    import pytest

    quiet = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:nbval"]
    quiet += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis has been imported before pytest starts
    return int(pytest.main([*quiet, *tests], plugins=[plugin]))


def attempt(task: Callable[[], int], seconds: float) -> str:
    """What became of a mutant under the tests that a task runs: "killed", "timeout" or "survived"."""

    def limited() -> int:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), 2 * int(seconds) + 5))  # of work: the machine may be busy
        return task()

    exit_code = forked(limited, 30 * seconds)
    if exit_code == BROKEN:
        sys.exit("mutants: the tool itself failed, see above")
    return "timeout" if exit_code in (None, -signal.SIGXCPU, -signal.SIGKILL) else "killed" if exit_code else "survived"


def imported(module: str, code: types.CodeType, tests: list[str]) -> int:
    """Run tests that import a changed module."""
    path, name = SOURCE / f"{home(module)}.py", home(module).replace("/", ".")

    class Loader(SourceFileLoader):
        def get_code(self, fullname):
            return code

    class Finder:
        @staticmethod
        def find_spec(fullname, path_=None, target=None):
            return (
                importlib.util.spec_from_file_location(name, path, loader=Loader(name, str(path)))
                if fullname == name
                else None
            )

    sys.meta_path.insert(0, Finder)
    return pytest_run(tests, Quick(module))


def parts(code: types.CodeType) -> Iterator[tuple[tuple[str, int], types.CodeType]]:
    """The code of every function in a piece of code, by its name and line."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield (constant.co_qualname, constant.co_firstlineno), constant
            yield from parts(constant)


class Bench(Quick):
    """In place of pytest's loop: run all tests once, see which runs which lines, then try mutants in forks from there.

    Args:
        module: the module.
        work: what to do then, with what was seen and a function like `imported` that changes the functions in place.
    """

    def __init__(self, module: str, work: Callable[[dict, Callable], None]):
        import coverage

        super().__init__(module)
        self.file, self.work, self.seconds = str(SOURCE / f"{home(module)}.py"), work, collections.Counter()
        os.environ["COVERAGE_CORE"] = "ctrace"  # the core that is chosen on Python 3.14 cannot tell tests apart
        self.coverage = coverage.Coverage(data_file=None, include=[self.file], config_file=False)
        self.coverage.start()

    def pytest_runtest_logstart(self, nodeid):
        """Lines are this test's from here on, those of its fixtures too, and so is the work."""
        if self.coverage:
            self.coverage.switch_context(nodeid)
            self.forget()
        self.seconds[nodeid] -= time.process_time()

    @staticmethod
    def forget():
        """What the unchanged module has answered is no answer of another test or of a changed one."""
        for name, module in list(sys.modules.items()):
            for value in vars(module).values() if name.startswith(("attnopt", "attnbook", "test_")) else ():
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()

    def pytest_runtest_logfinish(self, nodeid):
        """Sum the work of a test."""
        self.seconds[nodeid] += time.process_time()

    def pytest_runtestloop(self, session):
        """Called once the tests are collected."""

        def run(items: list, seconds: dict | None = None) -> int:
            for item, following in zip(items, [*items[1:], None], strict=True):
                if seconds:  # of work, several times what the test needs
                    _, most = resource.getrlimit(resource.RLIMIT_CPU)
                    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + 5 + 3 * seconds[item.nodeid]), most))
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.testsfailed:
                    return 1
            return 0

        alive = [f for f in gc.get_objects() if type(f) is types.FunctionType and f.__code__.co_filename == self.file]
        if run(session.items):
            return True
        self.coverage.stop()
        # tests by line; "" among them says that the line was run on import
        seen = {"seconds": dict(self.seconds), "lines": self.coverage.get_data().contexts_by_lineno(self.file)}
        self.coverage = None
        self.forget()
        items = {item.nodeid: item for item in session.items}
        gc.collect()
        gc.freeze()

        def changed(module: str, code: types.CodeType, tests: list[str]) -> int:
            new = dict(parts(code))
            for function in alive:
                function.__code__ = new[function.__code__.co_qualname, function.__code__.co_firstlineno]
            return run([items[test] for test in tests], seen["seconds"])

        self.work(seen, changed)
        return True


def judge(module: str, tree: ast.Module, mutant: Mutant, seen: dict, run: Callable) -> str:
    """Try one mutant: the tests that run its lines, the quickest first; all, if none does or the import does."""
    with mutant.applied():
        try:
            code = builtins.compile(ast.fix_missing_locations(tree), str(SOURCE / f"{home(module)}.py"), "exec")
        except (SyntaxError, ValueError):
            return "killed"
    seconds, lines = seen["seconds"], seen["lines"]
    near = {test for line in mutant.lines for test in lines.get(line, ())}
    tests = sorted(set(seconds) if near <= {""} or run is imported else near - {""}, key=seconds.get)
    return attempt(lambda: run(module, code, tests), 10 + 3 * sum(map(seconds.get, tests)))


def state(files: list[Path]) -> str:
    """A hash of the code in files, whatever their comments and docstrings say."""
    return hashlib.sha256("".join(bare(file.read_text(encoding="utf-8")) for file in files).encode()).hexdigest()


@functools.cache  # many modules have the same tests
def bare(text: str) -> str:
    """A script's syntax tree without its docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            del node.body[0]
    return ast.dump(tree)


def commit() -> str:
    """The hash of the commit that is checked out, shortened."""
    told = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    if told.returncode:
        sys.exit("mutants: there is no commit to draw from; give any word: --seed WORD")
    return told.stdout.strip()


def drawn(every: list, size: int | None, seed: str, module: str) -> list:
    """The mutants of a module that a seed draws; all, if no size is given or there are no more."""
    if size is None or size >= len(every):
        return every
    return random.Random(f"{seed} {module}").sample(every, size)


def stale(listed: Iterable[str], every: list, chosen: list, known: dict[str, str]) -> list[str]:
    """The listed survivors that are none: their mutant is gone, or was drawn and killed. One not drawn is no fault."""
    there, tried = ({mutant.name for mutant in some} for some in (every, chosen))
    return [name for name in listed if name not in there or (name in tried and known[name] != "survived")]


def prepared(module: str, row: dict) -> tuple[list[Mutant], str, str, Callable]:
    """A module's mutants, hashes of its code and of its tests, and what tries some mutants and notes each one's result."""
    tree = ast.parse((SOURCE / f"{home(module)}.py").read_text(encoding="utf-8"))
    every = mutants(tree)

    def judge_all(wanted: list[Mutant], note: Callable[[str, str], None]) -> None:
        def judge_some(some: list[Mutant], seen: dict, run: Callable) -> None:
            for mutant in some:
                note(mutant.name, judge(module, tree, mutant, seen, run))

        def work(seen: dict, run: Callable) -> None:
            early = [mutant for mutant in wanted if any("" in seen["lines"].get(line, ()) for line in mutant.lines)]
            report.write_text(repr((seen, [mutant.name for mutant in early])), encoding="utf-8")
            judge_some([mutant for mutant in wanted if mutant not in early], seen, run)

        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "seen"
            code = forked(lambda: pytest_run(row["tests"], Bench(module, work)), math.inf)
            if code:
                sys.exit(
                    f"mutants: the tests of {module} do not pass as they are (exit code {code}); "
                    f"run pytest {' '.join(row['tests'])}"
                )
            seen, early = ast.literal_eval(report.read_text(encoding="utf-8"))
            judge_some([mutant for mutant in wanted if mutant.name in early], seen, imported)

    tests = state([ROOT / test.partition("::")[0] for test in row["tests"]])
    return every, state([SOURCE / f"{home(module)}.py"]), tests, judge_all


def examine(module: str, row: dict, seed: str) -> tuple[int, int, list[Mutant], list[str]]:
    """Try the mutants of one module; how many there are and were tried, the survivors, and the listed ones that are none."""
    prepare = explorer_mutants.prepared if module.startswith(explorer_mutants.PREFIX) else prepared
    every, source, tests, judge_all = prepare(module, row)
    chosen = drawn(every, row.get("sample"), seed, module)
    file = CACHE / f"{module.replace('/', '.')}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)

    def results() -> dict[str, str]:
        found = {}
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            with contextlib.suppress(ValueError):  # half a line of an interrupted run
                entry = json.loads(line)
                if entry["source"] == source and (entry["tests"] == tests or entry["result"] == "killed"):
                    found[entry["name"]] = entry["result"]
        return found

    def note(name: str, result: str) -> None:
        with file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"source": source, "tests": tests, "name": name, "result": result}) + "\n")

    known = results()
    if wanted := [mutant for mutant in chosen if mutant.name not in known]:
        judge_all(wanted, note)
        known = results()
    survivors = [mutant for mutant in chosen if known[mutant.name] == "survived"]
    return len(every), len(chosen), survivors, stale(row.get("survivors", {}), every, chosen, known)


def whole_table() -> dict[str, dict]:
    """The table's rows, and those of the explorers' scripts, of which it need not speak."""
    written = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return written | {name: {"sample": 60} | written.get(name, {}) for name in explorer_mutants.modules()}


def main() -> None:
    """Examine the modules named, or all."""
    table = whole_table()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"any of {', '.join(table)}; all unless given")
    parser.add_argument("--seed", metavar="WORD", help="what the samples are drawn from; the commit's hash unless given")
    parser.add_argument("--sample", type=int, metavar="N", help="mutants of each module; the table's number unless given")
    options = parser.parse_args()
    names, seed = options.modules or list(table), options.seed or commit()
    for name in names:
        if name not in table:
            parser.error(f"no module {name!r} in {TABLE.relative_to(ROOT)}; there are {', '.join(table)}")
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT / "src"))
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    for library in LIBRARIES:
        __import__(library)
    torch = sys.modules["torch"]
    torch.set_num_threads(1)
    threads = [1]  # tests may ask for more, but do not get them: a fork of a process with threads waits for them for ever
    torch.set_num_threads, torch.get_num_threads = lambda number: threads.__setitem__(0, number), lambda: threads[0]
    bad, rows = 0, []
    sample = {"sample": options.sample} if options.sample else {}
    print(f"drawn from the seed {seed}", flush=True)
    for name in names:
        there, tried, survivors, wrong = examine(name, table[name] | sample, seed)
        reasons = table[name].get("survivors", {})
        new = [survivor for survivor in survivors if survivor.name not in reasons]
        equal = sum(reasons.get(survivor.name, "").startswith("equivalent") for survivor in survivors)
        rows.append((there, tried, tried - len(survivors), equal, len(survivors) - equal - len(new), len(new)))
        print(f"{name}: {rows[-1][2]} of {tried} killed, {len(new)} survivors without a reason", flush=True)
        for survivor in new:
            print(f"    survived, line {survivor.lines.start}: {survivor.name}")
        for entry in wrong:
            print(f"    listed, but killed or gone: {entry}")
        bad += len(new) + len(wrong)
    print(f"\nDrawn from the seed {seed}:\n")
    print("| module | mutants | tried | killed | equivalent | harmless | no reason |\n|---|---|---|---|---|---|---|")
    for name, row in [*zip(names, rows, strict=True), ("together", tuple(map(sum, zip(*rows, strict=True))))]:
        print(f"| {name} | {' | '.join(map(str, row))} |")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
